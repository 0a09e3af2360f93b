"""Property tests do not measure time: a busy machine must not fail them."""

from hypothesis import settings

settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")
