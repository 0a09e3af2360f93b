"""The agent's page: what the brain saw last, as HTML for people. It reads, decides nothing and changes nothing."""
