"""What the API takes and gives: ninja schemas, each with the way from a row to it."""
