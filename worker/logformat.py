"""How the processes of this room write their own logs."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
