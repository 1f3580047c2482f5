"""Structs of the public headers as ctypes types. Made by scripts/make_bindings: do not edit."""

from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)


class gw_workspace(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t)]


class gw_buffer(Structure):
    _fields_ = [("data", c_void_p), ("capacity", c_size_t), ("size", c_size_t)]


class gw_abi_field(Structure):
    _fields_ = [("name", c_char_p), ("offset", c_uint32), ("size", c_uint32)]


class gw_abi_struct(Structure):
    _fields_ = [("name", c_char_p), ("size", c_uint32), ("field_count", c_uint32), ("fields", POINTER(gw_abi_field))]


class gw_classic_options(Structure):
    _fields_ = [
        ("scheme", c_int),
        ("dtype", c_int),
        ("seed", c_uint64),
        ("backends", c_uint32),
        ("checksum", c_int),
        ("error_feedback", c_int),
        ("momentum", c_float),
        ("nesterov", c_int),
        ("momentum_mask", c_int),
        ("clip", c_float),
        ("unbiased", c_int),
        ("values", c_int),
        ("coding", c_int),
        ("norm", c_int),
        ("level_max", c_uint32),
        ("block_len", c_uint32),
    ]


class gw_classic(Structure):
    _fields_ = [("opaque", c_uint64 * 256)]


class gw_classic_step(Structure):
    _fields_ = [
        ("len", c_uint64),
        ("element_first", c_uint64),
        ("keep_len", c_uint64),
        ("round", c_uint32),
        ("rank", c_uint32),
    ]


class gw_classic_source(Structure):
    _fields_ = [("values", c_void_p), ("residual", c_void_p), ("momentum", c_void_p), ("norms", c_void_p)]


class gw_classic_frame(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("len_max", c_uint64), ("backends", c_uint32)]


class gw_classic_frame_info(Structure):
    _fields_ = [
        ("scheme", c_int),
        ("dtype", c_int),
        ("values", c_int),
        ("coding", c_int),
        ("norm", c_int),
        ("flags", c_uint32),
        ("level_max", c_uint32),
        ("block_len", c_uint32),
        ("round", c_uint32),
        ("rank", c_uint32),
        ("seed", c_uint64),
        ("element_first", c_uint64),
        ("len", c_uint64),
        ("keep_len", c_uint64),
        ("frame_size", c_uint64),
        ("payload_offset", c_uint64),
        ("payload_size", c_uint64),
    ]


class gw_classic_target(Structure):
    _fields_ = [("values", c_void_p), ("capacity", c_uint64), ("len", c_uint64), ("scale", c_float)]


class gw_classic_sum(Structure):
    _fields_ = [("lanes", c_void_p), ("size", c_size_t), ("members", c_uint32)]


class gw_optimizer(Structure):
    _fields_ = [
        ("kind", c_int),
        ("step", c_uint64),
        ("lr", c_double),
        ("peak_lr", c_double),
        ("weight_decay", c_double),
        ("momentum", c_double),
        ("dampening", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("alpha", c_double),
        ("eps", c_double),
        ("lr_decay", c_double),
        ("centered", c_int),
        ("amsgrad", c_int),
        ("maximize", c_int),
        ("decoupled_weight_decay", c_int),
        ("momentum_decay", c_double),
        ("mu_product", c_double),
    ]


class gw_optimizer_state(Structure):
    _fields_ = [("param", c_void_p), ("m", c_void_p), ("v", c_void_p), ("a", c_void_p)]


class gw_gcomp_map_limits(Structure):
    _fields_ = [("tolerance_bits", c_uint32), ("noise", c_float), ("noise_only", c_int), ("update_bits", c_uint32)]


class gw_gcomp_map_rule(Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("uses", c_uint32),
        ("limits", c_uint32),
        ("p_param", c_float),
        ("p_m", c_float),
        ("q_param", c_float),
        ("q_m", c_float),
        ("s_scale", c_float),
        ("eps", c_float),
        ("a_scale", c_float),
        ("noise", c_float),
        ("update", c_float),
        ("wire_scale", c_float),
    ]


class gw_gcomp_map(Structure):
    _fields_ = [
        ("levels", c_void_p),
        ("digest", c_void_p),
        ("base", c_uint32),
        ("wire_scale", c_float),
        ("len", c_uint64),
        ("chunk_log2", c_uint32),
    ]


class gw_gcomp_options(Structure):
    _fields_ = [
        ("dtype", c_int),
        ("levels", c_int),
        ("rounding", c_int),
        ("preset", c_int),
        ("step", c_uint32),
        ("cap", c_uint32),
        ("constant_drop", c_uint32),
        ("tolerance_bits", c_uint32),
        ("deep_cut", c_int),
        ("block_log2", c_uint32),
        ("target_nmse", c_float),
        ("chunk_log2", c_uint32),
        ("strict", c_int),
        ("checksum", c_int),
        ("backends", c_uint32),
        ("len_max", c_uint64),
    ]


class gw_gcomp(Structure):
    _fields_ = [("opaque", c_uint64 * 512)]


class gw_gcomp_segment(Structure):
    _fields_ = [("seed", c_uint64), ("first_element", c_uint64), ("len", c_uint64)]


class gw_gcomp_source(Structure):
    _fields_ = [
        ("values", c_void_p),
        ("len", c_uint64),
        ("map", POINTER(gw_gcomp_map)),
        ("seed", c_uint64),
        ("first_element", c_uint64),
        ("step_index", c_uint32),
        ("rank", c_uint16),
        ("hop", c_uint16),
        ("quanta", c_void_p),
        ("segments", POINTER(gw_gcomp_segment)),
        ("segment_count", c_size_t),
        ("segment_offset", c_uint64),
    ]


class gw_gcomp_range(Structure):
    _fields_ = [("chunk_first", c_uint64), ("chunk_count", c_uint64)]


class gw_gcomp_part(Structure):
    _fields_ = [("area", c_void_p), ("capacity", c_size_t), ("range", gw_gcomp_range), ("size", c_size_t)]


class gw_gcomp_info(Structure):
    _fields_ = [
        ("dtype", c_int),
        ("levels", c_int),
        ("step", c_uint32),
        ("cap", c_uint32),
        ("drop_base", c_int32),
        ("strict", c_int),
        ("checksum", c_int),
        ("installed", c_int),
        ("constant", c_int),
        ("chunk_log2", c_uint32),
        ("block_log2", c_uint32),
        ("len", c_uint64),
        ("chunk_count", c_uint64),
        ("frame_size", c_uint64),
        ("directory_offset", c_uint64),
        ("payload_offset", c_uint64),
        ("book_id", c_uint32),
        ("book_generation", c_uint32),
        ("book_crc", c_uint32),
        ("map_hash", c_uint64),
        ("wire_scale", c_float),
        ("meta_crc", c_uint32),
    ]


class gw_gcomp_frame(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("map", POINTER(gw_gcomp_map))]


class gw_gcomp_target(Structure):
    _fields_ = [
        ("values", c_void_p),
        ("capacity", c_uint64),
        ("len", c_uint64),
        ("bad_chunk", c_uint64),
        ("scale", c_float),
        ("bad_frame", c_size_t),
    ]


class gw_gcomp_chunk(Structure):
    _fields_ = [
        ("kind", c_int),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("book", c_uint32),
        ("crc", c_uint32),
        ("len", c_uint64),
    ]


class gw_gcomp_histogram(Structure):
    _fields_ = [
        ("dtype", c_uint32),
        ("levels", c_uint32),
        ("base", c_uint32),
        ("relative", c_uint32),
        ("count", c_uint64 * 256),
        ("mask_count", c_uint64 * 10),
    ]


class gw_gcomp_rate(Structure):
    _fields_ = [
        ("len", c_uint64),
        ("front_size", c_uint64),
        ("cost", c_uint64 * 23),
        ("nonzeros", c_uint64 * 23),
        ("square", c_double),
        ("error", c_double * 23),
        ("kind", c_int),
    ]


class gw_thc_table(Structure):
    _fields_ = [("bits", c_uint8), ("granularity", c_uint8), ("value", c_uint8 * 16)]


class gw_thc_table_cost(Structure):
    _fields_ = [("quantization", c_double), ("truncation", c_double), ("total", c_double), ("threshold", c_double)]


class gw_thc_options(Structure):
    _fields_ = [
        ("table", gw_thc_table),
        ("threshold_bits", c_uint32),
        ("worker_max", c_uint32),
        ("job", c_uint32),
        ("seed", c_uint64),
        ("dtype", c_int),
        ("transform", c_int),
        ("nonfinite", c_int),
        ("block_log2", c_uint32),
        ("lane_bits", c_uint32),
        ("error_feedback", c_int),
        ("checksum", c_int),
        ("backends", c_uint32),
    ]


class gw_thc_goal(Structure):
    _fields_ = [("bits", c_uint), ("worker_max", c_uint32), ("lane_bits", c_uint), ("error_feedback", c_int)]


class gw_thc_plan(Structure):
    _fields_ = [
        ("options", gw_thc_options),
        ("p", c_double),
        ("cost", gw_thc_table_cost),
        ("error_one", c_double),
        ("error_mean", c_double),
        ("up_bits", c_double),
        ("down_bits", c_double),
    ]


class gw_thc(Structure):
    _fields_ = [("opaque", c_uint64 * 128)]


class gw_thc_range(Structure):
    _fields_ = [
        ("len", c_uint64),
        ("block_first", c_uint64),
        ("block_count", c_uint64),
        ("round", c_uint32),
        ("rank", c_uint32),
    ]


class gw_thc_source(Structure):
    _fields_ = [
        ("values", c_void_p),
        ("error", c_void_p),
        ("patterns", c_void_p),
        ("rotated", c_void_p),
        ("own_patterns", c_void_p),
    ]


class gw_thc_prepared(Structure):
    _fields_ = [("own_patterns", c_void_p), ("rotated", c_void_p), ("bad_block", c_uint64)]


class gw_thc_indices(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("patterns", c_void_p)]


class gw_thc_agg(Structure):
    _fields_ = [("opaque", c_uint64 * 24)]


class gw_thc_agg_options(Structure):
    _fields_ = [("table", gw_thc_table), ("worker_max", c_uint32), ("lane_bits", c_uint32), ("backends", c_uint32)]


class gw_thc_partial(Structure):
    _fields_ = [("lanes", c_void_p), ("set", c_void_p), ("len", c_size_t)]


class gw_thc_sum(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("members", c_void_p), ("patterns", c_void_p)]


class gw_thc_target(Structure):
    _fields_ = [
        ("values", c_void_p),
        ("capacity", c_uint64),
        ("len", c_uint64),
        ("missing", c_uint64),
        ("bad_block", c_uint64),
    ]


class gw_thc_frame(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("len_max", c_uint64), ("backends", c_uint32)]


class gw_thc_frame_info(Structure):
    _fields_ = [
        ("options", gw_thc_options),
        ("flags", c_uint32),
        ("round", c_uint32),
        ("rank", c_uint32),
        ("block_first", c_uint64),
        ("block_count", c_uint64),
        ("len", c_uint64),
        ("frame_size", c_uint64),
        ("norms_offset", c_uint64),
        ("sets_offset", c_uint64),
        ("set_size", c_uint64),
        ("payload_offset", c_uint64),
        ("payload_size", c_uint64),
    ]


class gw_thc_packet_header(Structure):
    _fields_ = [
        ("magic", c_uint32),
        ("version", c_uint8),
        ("type", c_uint8),
        ("bits", c_uint8),
        ("granularity", c_uint8),
        ("lane_bits", c_uint8),
        ("block_log2", c_uint8),
        ("worker_max", c_uint16),
        ("job", c_uint32),
        ("round", c_uint32),
        ("block_first", c_uint32),
        ("block_count", c_uint16),
        ("rank", c_uint16),
        ("len", c_uint32),
        ("options_hash", c_uint64),
        ("norms_hash", c_uint64),
    ]


class gw_thc_packet(Structure):
    _fields_ = [("header", gw_thc_packet_header), ("set", c_void_p), ("payload", c_void_p), ("payload_size", c_size_t)]


class gw_thc_server_options(Structure):
    _fields_ = [
        ("table", gw_thc_table),
        ("worker_max", c_uint32),
        ("lane_bits", c_uint32),
        ("block_log2", c_uint32),
        ("options_hash", c_uint64),
        ("job", c_uint32),
        ("round_first", c_uint32),
        ("round_window", c_uint32),
        ("quorum", c_uint32),
        ("slot_count", c_uint32),
        ("slot_len", c_uint32),
        ("blocks_per_packet", c_uint32),
        ("backends", c_uint32),
        ("op", c_int),
    ]


class gw_thc_server(Structure):
    _fields_ = [("opaque", c_uint64 * 48)]


class gw_thc_reply(Structure):
    _fields_ = [
        ("action", c_int),
        ("rank", c_uint32),
        ("packet", c_void_p),
        ("packet_size", c_size_t),
        ("notice", c_uint8 * 48),
    ]


class gw_collective_shape(Structure):
    _fields_ = [
        ("len", c_uint64),
        ("rank_count", c_uint32),
        ("chunk_log2", c_uint32),
        ("shard_len", c_uint64),
        ("piece_len", c_uint64),
    ]


class gw_collective_layout(Structure):
    _fields_ = [
        ("shape", gw_collective_shape),
        ("shard_pieces", c_uint32),
        ("piece_count", c_uint32),
        ("piece_chunks", c_uint32),
        ("reserved", c_uint32),
    ]


class gw_collective_piece(Structure):
    _fields_ = [("owner", c_uint32), ("first", c_uint64), ("len", c_uint64), ("digest_first", c_uint64)]


class gw_collective_segment(Structure):
    _fields_ = [
        ("offset", c_uint64),
        ("len", c_uint64),
        ("rule", POINTER(gw_gcomp_map_rule)),
        ("state", gw_optimizer_state),
        ("seed", c_uint64),
        ("first_element", c_uint64),
    ]


class gw_collective_segments(Structure):
    _fields_ = [("at", POINTER(gw_collective_segment)), ("count", c_size_t)]


class gw_collective_map(Structure):
    _fields_ = [("levels", c_void_p), ("digest", c_void_p), ("base", c_uint32), ("wire_scale", c_float)]


class gw_collective_bucket(Structure):
    _fields_ = [
        ("layout", POINTER(gw_collective_layout)),
        ("codec", POINTER(gw_gcomp)),
        ("map", POINTER(gw_collective_map)),
        ("values", c_void_p),
        ("rank", c_uint32),
        ("step_index", c_uint32),
        ("streams", POINTER(gw_gcomp_segment)),
        ("stream_count", c_size_t),
        ("seed", c_uint64),
        ("first_element", c_uint64),
        ("contribution_bits", c_uint32),
    ]


class gw_collective_blame(Structure):
    _fields_ = [
        ("status", c_int),
        ("rank", c_uint32),
        ("piece", c_uint32),
        ("difference", c_uint32),
        ("bad_chunk", c_uint64),
    ]


class gw_cuda(Structure):
    _fields_ = [("opaque", c_uint64 * 256)]


class gw_cuda_info(Structure):
    _fields_ = [
        ("driver_version", c_uint32),
        ("arch_major", c_uint32),
        ("arch_minor", c_uint32),
        ("multiprocessor_count", c_uint32),
        ("shared_size_max", c_uint32),
    ]


class gw_cuda_result(Structure):
    _fields_ = [
        ("status", c_uint32),
        ("bad_frame", c_uint32),
        ("size", c_uint64),
        ("len", c_uint64),
        ("bad_index", c_uint64),
        ("missing", c_uint64),
    ]


class gw_cuda_buffer(Structure):
    _fields_ = [("data", c_void_p), ("capacity", c_uint64)]


class gw_cuda_target(Structure):
    _fields_ = [("values", c_void_p), ("capacity", c_uint64)]


class gw_cuda_gcomp_map_input(Structure):
    _fields_ = [
        ("rule", POINTER(gw_gcomp_map_rule)),
        ("device_rule", POINTER(gw_gcomp_map_rule)),
        ("state", POINTER(gw_optimizer_state)),
        ("len", c_uint64),
    ]


class gw_cuda_gcomp_key(Structure):
    _fields_ = [("seed", c_uint64), ("step_index", c_uint32), ("rank", c_uint16), ("hop", c_uint16)]


class gw_cuda_gcomp_device(Structure):
    _fields_ = [
        ("map_base", c_void_p),
        ("key", POINTER(gw_cuda_gcomp_key)),
        ("book", c_void_p),
        ("book_size", c_void_p),
        ("book_id", c_uint32),
        ("book_generation", c_uint32),
    ]


class gw_cuda_gcomp_request(Structure):
    _fields_ = [
        ("device", POINTER(gw_cuda_gcomp_device)),
        ("result", POINTER(gw_cuda_result)),
        ("workspace", gw_workspace),
        ("stream", c_void_p),
    ]


class gw_cuda_gcomp_frame(Structure):
    _fields_ = [("data", c_void_p), ("capacity", c_uint64), ("size_at", c_void_p), ("map", POINTER(gw_gcomp_map))]


class gw_cuda_gcomp_target(Structure):
    _fields_ = [("values", c_void_p), ("capacity", c_uint64), ("scale", c_float)]


class gw_cuda_gcomp_item(Structure):
    _fields_ = [
        ("src", c_void_p),
        ("dst", c_void_p),
        ("addend", c_void_p),
        ("src_size_at", c_void_p),
        ("src_size", c_uint64),
        ("dst_capacity", c_uint64),
        ("levels", c_void_p),
        ("digest", c_void_p),
        ("map_len", c_uint64),
        ("first_element", c_uint64),
        ("scale", c_float),
        ("reserved", c_uint32),
        ("after", POINTER(gw_cuda_result)),
        ("result", POINTER(gw_cuda_result)),
    ]


class gw_cuda_gcomp_batch(Structure):
    _fields_ = [
        ("items", POINTER(gw_cuda_gcomp_item)),
        ("item_count", c_uint32),
        ("value_total", c_uint64),
        ("map", POINTER(gw_gcomp_map)),
        ("key", POINTER(gw_cuda_gcomp_key)),
        ("is_add", c_int),
    ]


class gw_cuda_gcomp_hop(Structure):
    _fields_ = [
        ("src", c_void_p),
        ("src_size_at", c_void_p),
        ("src_size", c_uint64),
        ("values", c_void_p),
        ("len", c_uint64),
        ("first_element", c_uint64),
        ("dst", c_void_p),
        ("dst_capacity", c_uint64),
        ("src_levels", c_void_p),
        ("src_digest", c_void_p),
        ("src_map_len", c_uint64),
        ("levels", c_void_p),
        ("digest", c_void_p),
        ("map_len", c_uint64),
        ("after", POINTER(gw_cuda_result)),
        ("result", POINTER(gw_cuda_result)),
    ]


class gw_cuda_gcomp_hop_batch(Structure):
    _fields_ = [
        ("hops", POINTER(gw_cuda_gcomp_hop)),
        ("hop_count", c_uint32),
        ("value_total", c_uint64),
        ("src_map", POINTER(gw_gcomp_map)),
        ("map", POINTER(gw_gcomp_map)),
        ("key", POINTER(gw_cuda_gcomp_key)),
    ]


class gw_cuda_gcomp_histogram(Structure):
    _fields_ = [
        ("bin", c_uint64 * 1024),
        ("mask_count", c_uint64 * 10),
        ("first_chunk", c_uint64),
        ("first_relative", c_uint64),
        ("chunk_count", c_uint64),
    ]


class gw_cuda_gcomp_books(Structure):
    _fields_ = [("books", c_void_p), ("sizes", c_void_p), ("count", c_uint32)]


class gw_cuda_shared_sizes(Structure):
    _fields_ = [("encode", c_uint32), ("decode", c_uint32)]


class gw_cuda_thc_key(Structure):
    _fields_ = [("seed", c_uint64), ("round", c_uint32), ("rank", c_uint32)]


class gw_cuda_thc_request(Structure):
    _fields_ = [
        ("key", POINTER(gw_cuda_thc_key)),
        ("mode", c_int),
        ("result", POINTER(gw_cuda_result)),
        ("stream", c_void_p),
    ]


class gw_cuda_thc_inputs(Structure):
    _fields_ = [("data", c_void_p), ("ranks", c_void_p), ("sets", c_void_p), ("count", c_size_t), ("accumulate", c_int)]


class gw_runtime_options(Structure):
    _fields_ = [("thread_count", c_uint32), ("workspace_size", c_size_t)]


class gw_runtime_event(Structure):
    _fields_ = [
        ("user", c_uint64),
        ("kind", c_uint32),
        ("piece", c_uint32),
        ("data", c_void_p),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("word", c_uint64),
    ]


class gw_exchange_buffers(Structure):
    _fields_ = [("take", c_void_p), ("release", c_void_p), ("context", c_void_p)]


class gw_exchange_config(Structure):
    _fields_ = [
        ("shape", gw_collective_shape),
        ("rank", c_uint32),
        ("contribution_bits", c_uint32),
        ("codec", gw_gcomp_options),
        ("fallback_codec", gw_gcomp_options),
        ("user", c_uint64),
        ("seed", c_uint64),
        ("segment_max", c_uint64),
        ("buffers", gw_exchange_buffers),
    ]


class gw_exchange_info(Structure):
    _fields_ = [
        ("layout", gw_collective_layout),
        ("memory_size", c_uint64),
        ("message_bound", c_uint64),
        ("digest_len", c_uint64),
    ]


class gw_exchange_run(Structure):
    _fields_ = [
        ("values", c_void_p),
        ("result", c_void_p),
        ("scale", c_float),
        ("step_index", c_uint32),
        ("flags", c_uint32),
    ]


class gw_exchange_stats(Structure):
    _fields_ = [
        ("sent_size", c_uint64),
        ("received_size", c_uint64),
        ("map_ns", c_uint64),
        ("encode_ns", c_uint64),
        ("reduce_ns", c_uint64),
        ("decode_ns", c_uint64),
        ("operations", c_uint64),
        ("sample_square", c_double),
        ("sample_error", c_double),
    ]


class gw_plan_fault(Structure):
    _fields_ = [("what", c_char_p), ("index", c_uint32)]


class gw_plan_cost(Structure):
    _fields_ = [
        ("kind", c_int),
        ("a", c_int64),
        ("b", c_int64),
        ("t", c_int64),
        ("table_len", c_uint32),
        ("table_x", c_void_p),
        ("table_y", c_void_p),
    ]


class gw_plan_point(Structure):
    _fields_ = [("len", c_int64), ("ticks", c_int64)]


class gw_plan_fit(Structure):
    _fields_ = [("cost", gw_plan_cost), ("error_max", c_double), ("error_mean", c_double), ("r2", c_double)]


class gw_plan_tensor(Structure):
    _fields_ = [("name", c_char_p), ("len", c_int64), ("bwd", c_int64), ("forbidden", c_uint32)]


class gw_plan_method(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("device", c_int),
        ("enc", gw_plan_cost),
        ("net", gw_plan_cost),
        ("dec", gw_plan_cost),
        ("dec_more", gw_plan_cost),
        ("host", gw_plan_cost),
        ("owner_count", c_uint32),
        ("sum", gw_plan_cost),
        ("gather", gw_plan_cost),
        ("error", c_int64),
    ]


class gw_plan_problem(Structure):
    _fields_ = [
        ("tensors", POINTER(gw_plan_tensor)),
        ("tensor_count", c_uint32),
        ("methods", POINTER(gw_plan_method)),
        ("method_count", c_uint32),
        ("decode", c_int),
        ("group_len_max", c_int64),
        ("error_max", c_int64),
    ]


class gw_plan_group(Structure):
    _fields_ = [("first", c_uint32), ("tensor_count", c_uint32), ("method", c_uint32)]


class gw_plan(Structure):
    _fields_ = [("groups", POINTER(gw_plan_group)), ("capacity", c_uint32), ("group_count", c_uint32)]


class gw_plan_cert(Structure):
    _fields_ = [
        ("makespan", c_int64),
        ("lower_bound", c_int64),
        ("proven", c_int),
        ("labels", c_uint64),
        ("rounds", c_uint32),
        ("stopped", c_int),
    ]


class gw_plan_limits(Structure):
    _fields_ = [
        ("clock", c_void_p),
        ("clock_context", c_void_p),
        ("clock_max", c_int64),
        ("work_max", c_uint64),
        ("label_cap", c_uint32),
        ("gap_ppm", c_uint32),
    ]


class gw_plan_solver(Structure):
    _fields_ = [("algorithm", c_int), ("method", c_uint32), ("limits", gw_plan_limits)]


class gw_plan_bucket_rule(Structure):
    _fields_ = [("method", c_uint32), ("cap_first", c_int64), ("cap", c_int64), ("fill", c_int)]


class gw_plan_link(Structure):
    _fields_ = [("alpha", c_int64), ("beta_kib", c_int64)]


class gw_plan_cluster(Structure):
    _fields_ = [
        ("nodes", c_uint32),
        ("gpus", c_uint32),
        ("intra", gw_plan_link),
        ("inter", gw_plan_link),
        ("flags", c_uint32),
        ("host", gw_plan_link),
    ]


class gw_plan_codec(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("enc", gw_plan_cost * 2),
        ("dec", gw_plan_cost * 2),
        ("dec_peer_kib", c_int64),
        ("payload_header", c_int64),
        ("payload_num", c_int64),
        ("payload_den", c_int64),
        ("collectives", c_uint32),
        ("devices", c_uint32),
        ("sum", gw_plan_cost * 2),
        ("rounds", c_uint32),
        ("error", c_int64),
    ]


class gw_plan_option(Structure):
    _fields_ = [("op_count", c_uint8), ("comp_count", c_uint8), ("ops", c_uint8 * 12)]


class gw_plan_stage(Structure):
    _fields_ = [("duration", c_int64), ("resource", c_uint8), ("queue", c_uint8), ("kind", c_uint8), ("op", c_uint8)]


class gw_plan_job(Structure):
    _fields_ = [("bwd", c_int64), ("stage_count", c_uint32), ("stages", gw_plan_stage * 21)]


class gw_plan_vector(Structure):
    _fields_ = [
        ("gpu", c_int64),
        ("cpu", c_int64),
        ("net", c_int64),
        ("tail", c_int64),
        ("tail_cpu", c_int64),
        ("option", c_uint32),
    ]


class gw_plan_tree(Structure):
    _fields_ = [
        ("bwd", c_void_p),
        ("tensor_class", c_void_p),
        ("tensor_count", c_uint32),
        ("vectors", POINTER(gw_plan_vector)),
        ("class_first", c_void_p),
        ("class_count", c_uint32),
        ("decode", c_int),
    ]


class gw_plan_bytecomp_input(Structure):
    _fields_ = [("start", c_void_p), ("candidate", c_void_p), ("cpu_of", c_void_p)]


class gw_plan_span(Structure):
    _fields_ = [
        ("start", c_int64),
        ("end", c_int64),
        ("job", c_uint32),
        ("resource", c_uint8),
        ("kind", c_uint8),
        ("stage", c_uint8),
    ]


class gw_plan_run(Structure):
    _fields_ = [
        ("jobs", POINTER(gw_plan_job)),
        ("job_count", c_uint32),
        ("level", c_int),
        ("decode", c_int),
        ("flags", c_uint32),
    ]


class gw_plan_spans(Structure):
    _fields_ = [("items", POINTER(gw_plan_span)), ("capacity", c_size_t), ("count", c_size_t)]
