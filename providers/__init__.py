"""The outside world behind small protocols (see `providers.ports`); adapters translate and decide nothing."""
