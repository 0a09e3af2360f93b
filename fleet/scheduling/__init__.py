"""One pass over all that waits: quota, a place and a paid-for machine for every gang, or a reason why not."""
