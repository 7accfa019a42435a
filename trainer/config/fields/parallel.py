"""How the work is split over devices."""

from typing import Annotated, Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import later, no_effect, refused, setting
from trainer.config.values import Flag, PositiveOrUnset, Text, Whole, Words

COMMUNICATION = no_effect("the trainer chooses how its processes communicate; the result is the same")
NO_EXPERTS = "Gemma and BLOOM have no experts"
EXPERTS = refused(NO_EXPERTS, (1,))
AUTO = later("auto-parallel training")


class ParallelFields(FieldGroup):
    """Parallel degrees and their switches.

    -1 counts as 1, and with `sharding` its degree is then whatever the other degrees leave of the devices.
    """

    tensor_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split each layer.")
    pipeline_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split the list of layers.")
    sharding: Annotated[str, Words("stage1", "stage2", "stage3", "offload")] = setting(
        "",
        "What is split over the sharding group. stage1: optimizer state; stage2: gradients too; stage3:"
        " weights too.",
    )
    sharding_parallel_degree: PositiveOrUnset = setting(
        -1, "Devices of the sharding group; counts only with sharding. -1: all that the other degrees leave."
    )
    sep_parallel_degree: PositiveOrUnset = setting(
        -1, "Devices that split a sequence by heads.", later("segment parallelism", (1,))
    )
    context_parallel_degree: PositiveOrUnset = setting(
        -1, "Devices that split a sequence in a ring.", later("context parallelism", (1,))
    )
    expert_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split experts.", EXPERTS)
    expert_tensor_parallel_degree: PositiveOrUnset = setting(-1, "Devices that split an expert.", EXPERTS)
    use_expert_parallel: Flag | None = setting(False, "Split experts over devices.", refused(NO_EXPERTS))
    expert_max_capacity: Whole | None = setting(2**32, "Most tokens of an expert.", no_effect(NO_EXPERTS))
    expert_min_capacity: Whole | None = setting(1, "Fewest tokens of an expert.", no_effect(NO_EXPERTS))
    virtual_pp_degree: Whole = setting(1, "Chunks of layers per pipeline device.", ge=1)
    sequence_parallel: Flag = setting(
        False, "Split activations between the split matrices along the sequence."
    )
    fuse_sequence_parallel_allreduce: Flag = setting(False, "Fuse its reductions.", COMMUNICATION)
    tensor_parallel_output: Flag | None = setting(
        False,
        "Keep logits split over the vocabulary.",
        no_effect("with tensor parallelism they always stay split; the result is the same", (True,)),
    )
    tensor_parallel_rank: Whole = setting(
        0, "Rank in the tensor-parallel group.", no_effect("the launcher sets it"), ge=0
    )
    hybrid_parallel_topo_order: Literal["pp_first", "sharding_first"] | None = setting(
        None,
        "Order of the groups among ranks.",
        no_effect("it is pp_first; the result is the same", ("pp_first",)),
    )
    sharding_parallel_mesh_dimension: Text = setting(
        "dp", "Mesh axis of sharding.", no_effect("it belongs to enable_auto_parallel")
    )
    sharding_comm_buffer_size_MB: Whole = setting(  # noqa: N815
        -1, "Communication buffer of sharding in MB.", COMMUNICATION, ge=-1
    )
    split_inputs_sequence_dim: Flag = setting(
        True,
        "Split inputs along the sequence.",
        no_effect("it belongs to sep_parallel_degree and context_parallel_degree"),
    )
    data_parallel_config: Annotated[
        str, Words("enable_allreduce_avg_in_gradinent_scale", "gradient_sync_after_accumulate")
    ] = setting("", "Switches of data parallelism.", COMMUNICATION)
    sequence_parallel_config: Annotated[str, Words("enable_allreduce_avg_in_gradinent_scale")] = setting(
        "", "Switches of sequence parallelism.", COMMUNICATION
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
    ] = setting("", "Switches of tensor parallelism.", COMMUNICATION)
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
    ] = setting("", "Switches of pipeline parallelism.", COMMUNICATION)
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
    ] = setting("", "Switches of sharding, of which split_param has an effect.")
    ddp_find_unused_parameters: Flag | None = setting(
        None, "Look for parameters without gradient.", no_effect("every trained parameter has a gradient")
    )
    local_rank: Whole = setting(-1, "Rank on the host.", no_effect("the launcher sets it"), ge=-1)
    enable_auto_parallel: Flag | None = setting(False, "Let Paddle split the model.", AUTO)
    auto_parallel_resume_form_hybrid_parallel: Flag | None = setting(
        False, "Resume auto-parallel training from a hand-split one.", AUTO
    )
    to_static: Flag | None = setting(
        False, "Train a static graph.", no_effect("a dynamic graph is trained; the result is the same")
    )
