"""Files for monitoring: alert rules for Prometheus, a dashboard for Grafana."""

__all__ = [
    "command",
]
