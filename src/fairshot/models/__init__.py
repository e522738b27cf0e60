"""Backbones, the SR module, the cosine head, and how pictures become network input."""
