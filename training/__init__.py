"""What runs inside a training process: the hook, its part of the membership protocol, backends."""
