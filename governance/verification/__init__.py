"""The checks that `verify` makes, each blind to the others: chain, anchors, keys, meaning, heads."""
