from trainer.ops.host import configure_cpu

configure_cpu()
