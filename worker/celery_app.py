"""The Celery application. It carries wake-up calls (job id, attempt); the database decides what they mean."""

from celery import Celery

from store.settings import Settings

LAUNCH = "worker.launch"


def make_app(settings: Settings) -> Celery:
    """An application on the settings' broker, set up for tasks that take hours and may be delivered twice."""
    app = Celery("regatta", broker=settings.celery_broker_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_acks_late=False,  # a claim in the database decides who runs, not the broker
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,  # a reserved message would be delivered again after a while
        task_ignore_result=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_publish_retry=False,  # the outbox sends again
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_transport_options={
            "visibility_timeout": 86400,  # seconds; matters only between delivery and acknowledgement
            "socket_timeout": 10,  # without it, a broker that hangs would block for ever
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
            "health_check_interval": 5,
            "max_retries": 1,  # of a connection to publish with; by default that takes six seconds
            "interval_start": 0,
            "interval_step": 0.1,
            "queue_order_strategy": "priority",
            "priority_steps": list(range(10)),
        },
    )
    return app
