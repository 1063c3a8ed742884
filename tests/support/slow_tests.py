# SPDX-License-Identifier: Apache-2.0
"""Slow tests: the files that come first, and tests of which a nightly run has more cases.

All that is said of slow tests stands here, but for cases that a test leaves to a nightly run itself
(`tests.support.nightly`).
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import pytest

from tests.support.nightly import NIGHTLY

__all__ = ["EVERY_RUN", "FIRST", "SLOW", "put_slow_files_first", "skip_nightly_cases"]

# Files whose tests have the marker `slow`. They begin early, those that take longest first: one at
# the end would leave the other processes without work, which take files in this order.
SLOW = (
    "tests/examples/test_examples_online_workers.py",
    "tests/parallel/test_parallel_networks.py",
    "tests/online/test_online_effectively_once.py",
    "tests/online/test_online_workers.py",
    "tests/simulation/test_simulation.py",
    "tests/parallel/test_parallel_loop_train.py",
    "tests/cache/test_cache_device.py",
    "tests/nn/test_nn_cross_fused.py",
    "tests/serving/network/test_serving_onnx.py",
    "tests/optim/test_optim_dense_step.py",
    "tests/optim/test_over_workers.py",
    "tests/checkpoint/test_checkpoint_workers.py",
    "tests/parallel/test_parallel_reader.py",
    "tests/models/test_models_schema.py",
    "tests/parallel/test_parallel_failures.py",
    "tests/models/test_mmoe_commands.py",
    "tests/online/test_online_combination.py",
    "tests/simulation/test_simulation_workers.py",
    "tests/online/test_online_full_disk.py",
    "tests/online/test_online_interrupted.py",
    "tests/history/test_history.py",
    "tests/history/test_history_defects.py",
    "tests/command/test_command_from_wheel.py",
    "tests/command/test_command_runs.py",
    "tests/command/test_command_topic.py",
    "tests/train/test_train_kept_histories.py",
    "tests/arm/test_arm_smoke.py",
)

FIRST = (
    # They search all memory of their process, of which there is little at first.
    "tests/serving/test_faults_of_one_bit.py",
    "tests/parameter/test_digest.py",
    "tests/checkpoint/test_checkpoint_scrub.py",
    *SLOW,
    # Long files of short tests.
    "tests/checkpoint/test_checkpoint_resume.py",
    "tests/stream/test_stream_missing.py",
)

# Ids of the cases that every run has (`*` is any text), so that each kind of thing is tried once in
# the time that a run may take. What the others would find, a case that stays finds in most of its
# forms: another optimizer, model or number of workers, the same kill in a smaller program.
EVERY_RUN: dict[str, tuple[str, ...]] = {
    "tests/benchmarks/test_accuracy_benchmarks.py::test_baselines_come_near_the_truth": (
        "logistic regression",
        "boosted trees",
    ),
    "tests/benchmarks/test_benchmarks_cache.py::test_multi_level_cache": ("redis",),
    "tests/benchmarks/test_benchmarks_dynamic.py::test_the_policies_did_their_work": (),
    "tests/benchmarks/test_benchmarks_dynamic.py::test_the_sweep_takes_nearly_all_rows": (),
    "tests/benchmarks/test_benchmarks_run.py::test_grouped_tables": (),
    "tests/benchmarks/test_gpu_step.py::test_all_programs_agree_with_themselves": (),
    "tests/benchmarks/test_model_benchmarks.py::test_model_step": (),
    "tests/benchmarks/test_peers.py::test_peers_that_are_missing_are_left_out": (),
    "tests/cache/test_cache_device.py::test_admission_and_eviction": (
        "permit_filter_value",
        "eviction2",
    ),
    "tests/cache/test_cache_device.py::test_any_number_of_slots": (
        "graph-3-lfu",
        "pynative-1-lfu",
        "pynative-20-lru",
    ),
    "tests/cache/test_cache_device.py::test_cells_that_combine_rows": (
        "graph-beside",
        "graph-grouped",
        "pynative-*",
    ),
    "tests/cache/test_cache_device.py::test_every_optimizer_gives_the_same_bits": (
        "sgd",
        "lazy_adam",
        "clipped_scaled_decayed",
    ),
    "tests/cache/test_cache_device_graph.py::test_every_optimizer_agrees": (
        "sgd",
        "clipped_scaled_decayed",
    ),
    "tests/cache/test_cache_same_bits.py::test_prefetch": ("lru-0", "lfu-3"),
    "tests/cache/test_cache_scrub.py::test_nothing_is_found_over_redis": ("redis+ssd",),
    "tests/checkpoint/test_checkpoint_deltas.py::test_base_and_deltas_are_a_full_save": (
        "0",
        "4",
        "7",
        "10",
    ),
    "tests/checkpoint/test_checkpoint_directory.py::test_damage_is_named_and_changes_nothing": (
        "table_0.arrow-truncate",
        "table_0.arrow-flip",
        "dense.safetensors-remove",
    ),
    "tests/checkpoint/test_checkpoint_hostile.py::test_any_bytes": (
        "000000000004.delta-counters_1.sketch",
        "000000000000.full-table_0.arrow",
        "000000000004.delta-dense.safetensors",
        "000000000002.delta-deleted_0.arrow",
    ),
    "tests/checkpoint/test_checkpoint_of_mindspore.py::"
    "test_a_restart_says_nothing_of_parameters_that_are_not_loaded": (),
    "tests/checkpoint/test_checkpoint_of_mindspore.py::"
    "test_weights_without_their_rows_are_an_error_at_the_first_lookup": (
        "graph-load_by_state_dict",
        "pynative-load_by_file",
        "pynative-load_by_list",
    ),
    "tests/checkpoint/test_checkpoint_parts.py::test_any_number_of_workers_goes_on_as_one": (
        "1-count and steps",
        "2-plain",
        "3-count and seconds",
        "4-sketch",
    ),
    "tests/checkpoint/test_checkpoint_resume.py::test_a_kill": (),
    "tests/checkpoint/test_checkpoint_resume.py::test_other_data_are_refused_before_a_step": (
        "another order",
        "an order that is lost",
        "other steps of an epoch",
    ),
    "tests/checkpoint/test_checkpoint_resume.py::test_random_stops_change_nothing": (
        "list--1-0",
        "reader--1-0",
        "shuffled by NumPy-7-0",
    ),
    "tests/checkpoint/test_checkpoint_run.py::test_damage_is_named_and_changes_nothing": (
        "swap-delta",
        "remove-delta",
        "flip-full",
        "truncate-full",
    ),
    "tests/checkpoint/test_checkpoint_run.py::test_it_goes_on_bit_for_bit": ("cadence1",),
    "tests/checkpoint/test_checkpoint_scrub.py::"
    "test_nothing_is_found_where_rows_only_are_trained": ("ssd",),
    "tests/checkpoint/test_checkpoint_workers.py::test_a_full_disk_of_one_worker_is_one_of_all": (),
    "tests/command/test_command_from_wheel.py::test_csv": (),
    "tests/command/test_command_from_wheel.py::test_s3": (),
    "tests/command/test_command_runs.py::test_a_search_continues_where_it_ended": (),
    "tests/command/test_command_topic.py::test_a_topic_is_trained_on_and_continued": (),
    "tests/datasets/test_datasets_criteo_parts.py::"
    "test_a_killed_conversion_goes_on_to_the_same_bytes": ("parquet",),
    "tests/docs/test_docs_your_first_model.py::test_from_file_to_prediction": ("csv",),
    "tests/examples/test_examples_dynamic_features.py::test_auc_stays": (),
    "tests/examples/test_examples_dynamic_features.py::test_rows_stay_bounded": (),
    "tests/examples/test_examples_online_benchmarks.py::"
    "test_learning_online_pays_where_users_are_new": (),
    "tests/feature/test_feature_convert_example.py::test_the_examples_command_line": (),
    "tests/feature/test_feature_convert_revert.py::test_the_objects_of_before_are_back": ("hash",),
    "tests/feature/test_feature_convert_training.py::"
    "test_trains_with_the_loss_curve_of_the_ordinary_network": (
        "DeepFM-hash-nn.Embedding-SGD",
        "DeepFM-hash-mint.nn.Embedding-SGD",
        "TwoTower-static-nn.EmbeddingLookup CPU-SGD",
        "TwoTower-hash-nn.Embedding-Adam",
    ),
    "tests/feature/test_feature_many_lookups.py::"
    "test_networks_made_again_do_not_use_lookups_up": (),
    "tests/launch/test_launch_runs.py::test_a_signal_asks_all_workers_to_stop": ("15",),
    "tests/models/test_click_commands.py::test_several_seeds_give_mean_and_deviation": (),
    "tests/models/test_click_models.py::test_admission_and_eviction_by_configuration": (
        "one-held0-30",
        "per_field-held2-12",
    ),
    "tests/models/test_click_models.py::test_learns_what_two_fields_decide_together": (
        "deepfm-static_per_field",
        "dlrm-hash",
    ),
    "tests/models/test_click_models.py::test_trained_logits_are_the_formula": (
        "dcn_v2-embed",
        "dcn-concat",
    ),
    "tests/models/test_click_models_cache.py::test_rows_on_ssd_learn_the_same_bits": ("held1",),
    "tests/models/test_click_models_precision.py::test_half_precision_learns_as_single_does": (
        "dlrm-bfloat16",
        "dlrm-float16",
    ),
    "tests/models/test_criteo_x1.py::test_the_very_configuration_runs": ("deepfm",),
    "tests/models/test_mmoe_commands.py::test_census_income_auc": (),
    "tests/models/test_mmoe_commands.py::test_several_seeds_are_what_each_is_alone": (),
    "tests/models/test_mmoe_net.py::test_logits_are_the_formula_after_training": (
        "graph-2",
        "pynative-0",
    ),
    "tests/models/test_mmoe_switches.py::test_a_lookup_a_field_changes_no_bit": (),
    "tests/models/test_mmoe_switches.py::test_every_kind_learns": ("embedding2",),
    "tests/models/test_mmoe_switches.py::test_half_precision_learns_as_single_does": (),
    "tests/models/test_mmoe_switches.py::test_rows_on_ssd_learn_the_same_bits": ("embedding1",),
    "tests/models/test_models_config.py::test_a_model_of_one_task_takes_numbered_ids": ("held0",),
    "tests/models/test_models_workers.py::"
    "test_workers_divide_the_evaluation_and_have_its_numbers": (),
    "tests/models/test_wide_deep_commands.py::"
    "test_eval_of_the_saved_model_gives_the_trained_auc": (),
    "tests/models/test_models_members.py::"
    "test_an_answer_is_the_mean_of_the_members_probabilities": (
        "dcn_v2-embed",
        "deepfm-periodic",
        "dlrm-piecewise",
        "dcn-concat",
        "mmoe-concat",
        "wide_deep-concat",
    ),
    "tests/models/test_models_members.py::"
    "test_members_with_equal_weights_are_the_network_of_one_member": (
        "dcn_v2-embed",
        "deepfm-periodic",
        "dlrm-piecewise",
        "mmoe-concat",
    ),
    "tests/models/test_models_members.py::test_a_loss_of_the_user_is_the_mean_over_members": (
        "graph-sum",
        "pynative-*",
    ),
    "tests/models/test_models_members.py::test_members_learn_and_are_made_again": ("graph",),
    "tests/models/test_models_members.py::test_the_loss_is_the_mean_of_the_members_losses": (
        "graph-True",
        "pynative-*",
    ),
    "tests/models/test_models_schema.py::test_rows_in_probabilities_out_wherever_the_network_is": (
        *(f"graph-{name}" for name in ("dcn_v2", "deepfm", "logistic_regression", "mmoe")),
        "pynative-dlrm",
        "graph-dcn_v2-members",
        *(f"pynative-{name}-members" for name in ("dcn_v2", "deepfm", "mmoe")),
    ),
    "tests/models/test_wide_deep_commands.py::test_the_same_seed_gives_the_same_figures": (),
    "tests/models/test_wide_deep_net.py::test_logits_are_the_formula_after_training": (
        "graph-0-static",
        "graph-2-device",
        "pynative-2-hash",
    ),
    "tests/nn/test_nn_batch_norm_fused.py::test_fused_is_mindspores_in_both_modes": (
        "graph-0.5-gelu",
        "pynative-0.0-relu",
    ),
    "tests/nn/test_nn_cross.py::test_learns_a_product_that_a_linear_model_of_its_size_cannot": (
        "v2",
    ),
    "tests/nn/test_nn_cross.py::test_one_compiled_network_takes_batches_of_any_size": ("mix",),
    "tests/nn/test_nn_cross.py::test_values_and_gradients_are_the_formula_s": (
        "graph-v1",
        "graph-v2",
        "graph-mix",
        "pynative-*",
    ),
    "tests/nn/test_nn_cross_fused.py::test_a_checkpoint_moves_both_ways": ("v2", "mix"),
    "tests/nn/test_nn_cross_fused.py::test_an_exported_network_has_products_that_others_know": (
        "v1",
        "mix",
    ),
    "tests/nn/test_nn_cross_fused.py::test_any_number_of_threads_gives_the_same_bits": (
        "mix-float32",
        "v2-bfloat16",
    ),
    "tests/nn/test_nn_cross_fused.py::test_rows_of_another_width_are_refused": (
        "graph-v1",
        "graph-mix linear",
        "pynative-*",
    ),
    "tests/nn/test_nn_dot_interaction.py::"
    "test_learns_products_of_fields_that_a_linear_model_of_its_size_cannot": (),
    "tests/nn/test_nn_embedding.py::test_a_list_of_26_tables_learns": ("graph-Model.train",),
    "tests/nn/test_nn_embedding.py::test_any_rank": ("graph-shape0", "graph-shape5", "pynative-*"),
    "tests/nn/test_nn_embedding.py::test_trains_as_a_dense_parameter_does": (
        "graph-adam-hash",
        "graph-sgd-DEVICE",
        "graph-sgd-CPU",
        "pynative-*",
    ),
    "tests/nn/test_nn_embedding_bag.py::test_rows_of_ids": (
        "graph-plain-hash-mean",
        "graph-weighted-static-sqrtn",
        "graph-weighted-hash-sum",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_changed.py::test_each_cell_inside_may_be_frozen": (
        "gelu",
        "mix",
        "graph",
    ),
    "tests/nn/test_nn_fused_changed.py::test_hooks_of_each_cell_inside_are_called": (
        "mlp",
        "mix",
        "stack",
        "graph",
    ),
    "tests/nn/test_nn_fused_compute_dtype.py::test_it_is_used_at_once": (
        "graph-False-mmoe",
        "graph-True-mlp",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_fallback.py::test_a_library_that_cannot_be_used_is_one_warning": (
        "cut",
    ),
    "tests/nn/test_nn_fused_fallback.py::"
    "test_hidden_layers_without_onednn_round_the_same_factors": ("graph-True", "pynative-*"),
    "tests/nn/test_nn_fused_graph_use.py::test_threads_change_no_bit": ("graph-33", "pynative-*"),
    "tests/nn/test_nn_fused_inputs.py::test_the_number_of_inputs_of_several_widths": (
        "graph-fused-*",
        "graph-plain-*-mlp",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_join.py::test_both_forms_read_the_same_rows": (
        "graph-0-mmoe",
        "graph-3-cross-mix",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_join.py::test_rows_of_another_width_are_an_error_and_no_further_rows": (
        "graph-mmoe",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_join.py::test_rows_stay_rows": (
        "graph-True-3",
        "graph-False-0",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_join.py::test_several_inputs_can_be_exported": (
        "ONNX-mmoe",
        "ONNX-cross-mix",
        "MINDIR-mmoe",
    ),
    "tests/nn/test_nn_fused_narrow_inputs.py::test_a_model_trains_as_with_casts": ("bfloat16",),
    "tests/nn/test_nn_fused_narrow_inputs.py::test_results_are_those_of_the_same_numbers": (
        "graph-normalized mlp",
        "graph-cross",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_narrow_inputs.py::test_without_the_fused_form_inputs_are_cast": (
        "graph-graph",
        "pynative-*",
    ),
    "tests/nn/test_nn_fused_second.py::test_a_gradient_penalty": (
        "graph-mlp-True",
        "graph-dots-False",
        "pynative-*",
    ),
    "tests/nn/test_nn_grouped.py::test_grouped_equals_separate_bit_for_bit": ("2-dims1",),
    "tests/nn/test_nn_mlp_fused.py::test_in_a_graph": ("relu-0.3-True", "gelu-0.0-False"),
    "tests/nn/test_nn_mmoe.py::test_a_seed_gives_the_same_training": (),
    "tests/nn/test_nn_output_dtype.py::test_training_is_that_of_float32": (
        "graph-both",
        "graph-admission",
        "pynative-*",
    ),
    "tests/nn/test_nn_padded.py::test_blocks_and_values_equal_a_plain_model": (
        "graph-last",
        "pynative-*",
    ),
    "tests/online/test_online_combination.py::test_reading_ahead_changes_no_bit": (),
    "tests/online/test_online_effectively_once.py::test_kills_of_the_trainer": (),
    "tests/online/test_online_full_disk.py::test_a_disk_that_fills_up": (),
    "tests/online/test_online_interrupted.py::test_sigterm": (),
    "tests/optim/test_optim_combined.py::test_checkpoint_round_trip_continues_the_same_way": (
        "graph-True",
        "pynative-*",
    ),
    "tests/optim/test_optim_dense_step.py::test_bits_of_a_tables_rows": (
        "graph-SGD",
        "graph-LazyAdam-nesterov",
        "graph-AdamW",
        "graph-FTRL-power",
        "graph-RMSProp-centered",
        "pynative-*",
    ),
    "tests/optim/test_optim_dense_step.py::test_like_mindspores_operators": (
        "RowWiseAdagrad",
        "LazyAdam-nesterov",
        "FTRL-power",
    ),
    "tests/optim/test_optim_gradient_arithmetic.py::"
    "test_a_mean_over_passes_is_refused_and_their_sum_is_taken": (
        "graph-lookup",
        "graph-device",
        "pynative-*",
    ),
    "tests/optim/test_optim_gradient_arithmetic.py::test_changed_gradients_are_refused_by_name": (
        "graph-global norm",
        "graph-dropped",
        "graph-float16",
        "pynative-*",
    ),
    "tests/optim/test_optim_gradient_count.py::test_nothing_is_updated": (
        "graph-0-*-LazyAdam",
        "graph-3-*-SGD",
        "graph-1-1.0-Adagrad",
        "pynative-*",
    ),
    "tests/optim/test_optim_mindspore.py::test_like_mindspores_dense_optimizer": (
        "graph-SGD-decay",
        "graph-Adagrad",
        "graph-Adam",
        "graph-Momentum",
        "graph-RMSProp-centered",
        "pynative-Adagrad",
        "pynative-Momentum",
    ),
    "tests/optim/test_over_workers.py::test_workers_train_what_one_process_does": (
        "2-graph-bfloat16",
    ),
    "tests/parallel/test_parallel_ends.py::test_a_thread_that_goes_on": (),
    "tests/parallel/test_parallel_ends.py::test_operators_that_the_program_did_not_wait_for": (
        "finish",
    ),
    "tests/parallel/test_parallel_exchanges.py::test_workers_of_a_plain_mpirun": (),
    "tests/parallel/test_parallel_failures.py::test_one_that_ends": ("kill-*",),
    "tests/parallel/test_parallel_failures.py::"
    "test_one_that_takes_its_time_at_the_end_is_waited_for": (),
    "tests/parallel/test_parallel_loop_train.py::"
    "test_what_does_not_fit_is_one_sentence_and_all_end": (
        "differing-ValueError: train_dataset must be the same on all workers",
    ),
    "tests/parallel/test_parallel_networks.py::test_another_number_of_workers_goes_on": (),
    "tests/parallel/test_parallel_refusals.py::test_a_soft_limit_of_file_descriptors_is_raised": (),
    "tests/parallel/test_parallel_refusals.py::test_different_scripts": (),
    "tests/parallel/test_parallel_rows.py::test_rows_of_all_workers_from_any": ("3",),
    "tests/parallel/test_two_hosts.py::"
    "test_two_hosts_have_the_losses_of_two_workers_of_one_host": (),
    "tests/parameter/test_precision_tables.py::test_the_same_bits_wherever_rows_live": (
        "value1-state1",
    ),
    "tests/serving/following/test_serving_follow.py::test_training_that_goes_back": ("3",),
    "tests/serving/following/test_serving_scrub.py::test_nothing_is_found_while_deltas_come": (
        "redis",
    ),
    "tests/serving/following/test_serving_tiers.py::"
    "test_answers_are_of_whole_states_while_deltas_arrive": ("both",),
    "tests/serving/network/test_serving_onnx.py::test_onnx_answers_are_those_of_mindspore": (
        "dcn_v2_mixture_bn",
        "mmoe",
    ),
    "tests/serving/server/test_serving_process.py::"
    "test_starts_without_checkpoint_follows_and_stops": ("15",),
    "tests/serving/server/test_serving_scrub_server.py::"
    "test_a_row_that_changed_in_a_server_is_named": ("1-float32", "2-int8"),
    "tests/serving/server/test_serving_scrub_server.py::test_nothing_is_found_while_deltas_come": (
        "2",
    ),
    "tests/serving/test_serving_benchmark.py::test_serving_load_runs": (),
    "tests/simulation/test_simulation_defects.py::test_defects_are_found": (
        "place_as_of_writing",
        "names_not_synced",
        "files_not_synced",
        "inputs_removed_first",
        "changes_of_a_failed_delta_lost",
        "answers_while_it_changes",
        "left_overs_stay",
        "clock_not_loaded",
        "failed_name_stays",
        "name_of_the_run_not_synced",
        "merge_fails_the_training",
        "partitions_never_read",
        "partitions_read_after_a_restart",
        "topic_without_an_id",
        "erased_rows_come_back",
        "nothing_saved_in_silence",
        "failed_delta_not_tried_again",
        "batches_read_ahead_wait",
        "cut_of_no_rows",
    ),
    "tests/simulation/test_simulation_workers.py::test_defects_are_found": (
        "settings_not_in_the_state",
        "decisions_not_kept",
        "states_of_replaced_workers",
        "state_in_the_place_of_a_later_one",
        "one_journal_for_two_workers",
    ),
    "tests/stream/test_stream_batches.py::test_whatever_wraps_a_stream_goes_on_at_every_batch": (
        "stream",
        "features with time",
        "some features",
        "some that learn twice",
        "one stage that learns, of some",
        "duck",
    ),
    "tests/stream/test_stream_broker.py::test_messages_survive_kill_and_restart": (),
    "tests/stream/test_stream_clock.py::test_a_sender_whose_clock_is_wrong": ("2",),
    "tests/stream/test_stream_missing.py::test_a_marker_at_the_end_is_no_message_to_wait_for": (
        "committed-read_committed",
        "aborted-read_uncommitted",
    ),
    "tests/stream/test_stream_missing.py::test_transactions_leave_no_gaps": ("read_committed",),
    "tests/stream/test_stream_partitions.py::"
    "test_a_journal_repeats_the_batches_with_partitions_added": ("0", "1", "3"),
    "tests/stream/test_stream_worker.py::test_kills_lose_and_double_nothing": (),
    "tests/stream/test_stream_writer.py::test_a_broker_that_dies_and_comes_back": (),
    "tests/test_promises_step.py::test_several_lookups_are_one_lookup_of_them_all": (
        "graph-adam",
        "pynative-*",
    ),
    "tests/train/test_train_admission_epochs.py::test_a_model_says_so_in_its_configuration": (),
    "tests/train/test_train_admission_epochs.py::"
    "test_a_threshold_is_of_the_data_where_one_epoch_counts": (
        "3-callbacks1-rows1-SketchAdmission",
        "3-callbacks2-rows2-CountAdmission",
    ),
    "tests/train/test_train_admission_restart.py::test_steps_go_on_after_a_restart": ("-1",),
    "tests/train/test_train_callbacks.py::test_early_stopping": (
        "values0-arguments0-4",
        "values1-arguments1-6",
        "values5-arguments5-4",
    ),
    "tests/train/test_train_hints.py::test_hashed_ids_for_a_vocabulary_are_said": (
        "True-nn.EmbeddingLookup",
        "True-device",
        "False-zeros",
    ),
    "tests/train/test_train_interrupt.py::"
    "test_a_signal_finishes_the_step_and_leaves_the_table_whole": ("silent-15", "dataset-2"),
    "tests/train/test_train_named_columns.py::test_columns_have_their_names": (
        "<lambda>-columns[1-4]-*",
        "<lambda>-columns[6-9]-*",
        "as_dataset-columns10-*",
        "as_dataset-columns1[3-4]-*",
        "as_dataset-columns1[6-8]-*",
    ),
    "tests/train/test_train_named_columns.py::test_so_do_later_batches_of_any_size": (
        "columns0-*",
        "columns[34]-*",
    ),
    "tests/train/test_train_networks_freed.py::test_ten_networks_take_the_memory_of_two": (),
    "tests/train/test_train_rec_model.py::test_every_kind_of_source_trains_the_same": (
        "graph-unsized",
        "graph-dataset",
        "pynative-*",
    ),
    "tests/train/test_train_statistics.py::test_trained_saved_loaded_exported_and_served": (
        "folds",
    ),
    "tests/train/test_train_two_optimizers.py::test_mindrecs_wide_and_deep_cell_trains": (
        "graph-online_train",
    ),
}


def put_slow_files_first(items: list[pytest.Item]) -> None:
    """Sort tests by `FIRST`, and mark each test of a `SLOW` file as slow."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(_file(item), len(FIRST)))
    for item in items:
        if _file(item) in SLOW:
            item.add_marker(pytest.mark.slow)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def skip_nightly_cases(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Mark the cases that only a nightly run has.

    Raises:
        pytest.UsageError: a case that every run shall have is not there.
    """
    found: dict[str, set[str]] = {}
    skip = pytest.mark.skip(reason="a case that MINDSPORE_REC_NIGHTLY=1 runs")
    for item in items:
        name, _, case = item.nodeid.partition("[")
        if name not in EVERY_RUN:
            continue
        found.setdefault(name, set()).add(case[:-1])
        if not NIGHTLY and not any(fnmatchcase(case[:-1], kept) for kept in EVERY_RUN[name]):
            item.add_marker(skip)
    if any("::" in argument for argument in config.args):
        return  # not all cases were collected
    for name, cases in found.items():
        for kept in EVERY_RUN[name]:
            if not any(fnmatchcase(case, kept) for case in cases):
                raise pytest.UsageError(f"tests/support/slow_tests.py: {name} has no case {kept!r}")
