"""The base session: views, loop, checkpoints. Nothing here knows a method."""
