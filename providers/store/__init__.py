"""Where the ledger keeps its records: a file of SQLite on a volume, or Parquet in S3."""
