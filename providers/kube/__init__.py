"""The Kubernetes API as a thin transport of bytes, reflectors and a leader election.

`kubernetes` is used for what nobody should rewrite (kubeconfig, exec plugins, token refresh, TLS, proxies) and imported
only when a connection is made. Importing this package costs nothing; import its modules by name.
"""
