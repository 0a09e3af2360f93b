"""What is declared: kinds, quantities, the requirements algebra and the loader that names file, line and column."""
