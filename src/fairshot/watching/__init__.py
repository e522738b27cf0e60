"""A store that answers each new picture of a folder, a camera or a video, and tells others about it."""
