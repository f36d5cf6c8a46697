"""What governance uses of others: each package holds one vendor behind one of governance's ports."""
