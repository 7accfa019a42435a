"""How the work is split over devices."""

from typing import Annotated, Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import later, no_effect, setting
from trainer.config.values import Flag, PositiveOrUnset, Text, Whole, Words

DEGREE = later("training on several devices", (1,), by_rule=True)
ONE_DEVICE = no_effect("there is one device, so nothing is split")
NO_EXPERTS = no_effect("Gemma and BLOOM have no experts")
AUTO = later("auto-parallel training")


class ParallelFields(FieldGroup):
    """Parallel degrees and their switches. -1 counts as 1."""

    tensor_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split each layer.", DEGREE)
    pipeline_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split the list of layers.", DEGREE)
    sharding: Annotated[str, Words("stage1", "stage2", "stage3", "offload")] = setting(
        "", "What is split over the sharding group: optimizer state, gradients, weights.", ONE_DEVICE
    )
    sharding_parallel_degree: PositiveOrUnset = setting(
        -1, "Devices of the sharding group; counts only with sharding.", DEGREE
    )
    sep_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split a sequence by heads.", DEGREE)
    context_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split a sequence in a ring.", DEGREE)
    expert_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split experts.", NO_EXPERTS)
    expert_tensor_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split an expert.", NO_EXPERTS)
    use_expert_parallel: Flag | None = setting(False, "Split experts over devices.", NO_EXPERTS)
    expert_max_capacity: Whole | None = setting(2**32, "Most tokens of an expert.", NO_EXPERTS)
    expert_min_capacity: Whole | None = setting(1, "Fewest tokens of an expert.", NO_EXPERTS)
    virtual_pp_degree: Whole = setting(1, "Chunks of layers per pipeline device.", ONE_DEVICE, ge=1)
    sequence_parallel: Flag = setting(False, "Split activations along the sequence.", ONE_DEVICE)
    fuse_sequence_parallel_allreduce: Flag = setting(False, "Fuse its reductions.", ONE_DEVICE)
    tensor_parallel_output: Flag | None = setting(False, "Keep logits split over the vocabulary.", ONE_DEVICE)
    tensor_parallel_rank: Whole = setting(
        0, "Rank in the tensor-parallel group.", no_effect("the launcher sets it"), ge=0
    )
    hybrid_parallel_topo_order: Literal["pp_first", "sharding_first"] | None = setting(
        None, "Order of the groups among ranks.", ONE_DEVICE
    )
    sharding_parallel_mesh_dimension: Text = setting("dp", "Mesh axis of sharding.", ONE_DEVICE)
    sharding_comm_buffer_size_MB: Whole = setting(  # noqa: N815
        -1, "Communication buffer of sharding in MB.", ONE_DEVICE, ge=-1
    )
    split_inputs_sequence_dim: Flag = setting(True, "Split inputs along the sequence.", ONE_DEVICE)
    data_parallel_config: Annotated[
        str, Words("enable_allreduce_avg_in_gradinent_scale", "gradient_sync_after_accumulate")
    ] = setting("", "Switches of data parallelism.", ONE_DEVICE)
    sequence_parallel_config: Annotated[str, Words("enable_allreduce_avg_in_gradinent_scale")] = setting(
        "", "Switches of sequence parallelism.", ONE_DEVICE
    )
    tensor_parallel_config: Annotated[
        str,
        Words(
            "enable_mp_async_allreduce",
            "enable_mp_skip_c_identity",
            "enable_mp_fused_linear_param_grad_add",
            "enable_sp_async_reduce_scatter",
            "enable_delay_scale_loss",
            "sync_param",
            "sync_grad",
            "sync_moment",
        ),
    ] = setting("", "Switches of tensor parallelism.", ONE_DEVICE)
    pipeline_parallel_config: Annotated[
        str,
        Words(
            "disable_p2p_cache_shape",
            "disable_partial_send_recv",
            "enable_delay_scale_loss",
            "enable_dp_comm_overlap",
            "enable_sharding_comm_overlap",
            "enable_timer",
            "enable_release_grads",
            "enable_clear_every_step_cache",
            "enable_overlap_p2p_comm",
            "disable_batch_p2p_comm",
            "best_unbalanced_scheduler",
            "use_dualpipev",
        ),
    ] = setting("", "Switches of pipeline parallelism.", ONE_DEVICE)
    sharding_parallel_config: Annotated[
        str,
        Words(
            "enable_stage1_tensor_fusion",
            "enable_stage1_overlap",
            "enable_stage2_overlap",
            "split_param",
            "disable_stage1_reduce_avg",
            "enable_stage1_broadcast_overlap",
            "enable_stage1_allgather_overlap",
            "enable_release_grads",
            "enable_fuse_optimizer_states",
        ),
    ] = setting("", "Switches of sharding.", ONE_DEVICE)
    ddp_find_unused_parameters: Flag | None = setting(
        None, "Look for parameters without gradient.", ONE_DEVICE
    )
    local_rank: Whole = setting(-1, "Rank on the host.", no_effect("the launcher sets it"), ge=-1)
    enable_auto_parallel: Flag | None = setting(False, "Let Paddle split the model.", AUTO)
    auto_parallel_resume_form_hybrid_parallel: Flag | None = setting(
        False, "Resume auto-parallel training from a hand-split one.", AUTO
    )
    to_static: Flag | None = setting(
        False, "Train a static graph.", no_effect("a dynamic graph is trained; the result is the same")
    )
