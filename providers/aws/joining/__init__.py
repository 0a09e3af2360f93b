"""How machines of each image family are told to join their cluster; `providers.aws.user_data` chooses."""
