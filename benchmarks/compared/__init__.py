"""What speed.py measures, and how: networks, their forms written by hand, operators alone, peers, timing."""
