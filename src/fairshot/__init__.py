"""fairshot: give new classes a fair shot."""
