"""One file a system; each composes the rooms and adds only its own loss and rule."""
