"""The life of a machine: intent, launch, registration, readiness, drift facts, repair, adoption, orphans, end."""
