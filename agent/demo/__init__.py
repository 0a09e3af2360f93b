"""The demo: the main job from a git push to a running gang, told step by step and checked."""
