"""What the workers use of vendors, each behind a port of ours."""
