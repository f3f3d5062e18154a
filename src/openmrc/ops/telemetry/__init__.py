"""What is shipped for those who watch: alert rules for Prometheus, a dashboard for Grafana."""
