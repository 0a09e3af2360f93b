"""Yardsticks that the product is compared with. No product package imports them, and the wheel carries none."""
