"""Backbones, the SR module, the mixture head, and how pictures become their input."""
