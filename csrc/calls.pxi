# What C declares: a structure for each kernel, and which instruction sets there are.

cdef extern from "rules.h" nogil:
    enum rule_t "rule":
        pass


cdef extern from "kernels.h" nogil:
    struct form_contexts_t "form_contexts":
        const void *tokens
        const int64_t *positions
        ptrdiff_t batch, context
        int32_t narrow, start_id, end_id
        int32_t *contexts
        int32_t *targets

    struct find_bad_id_t "find_bad_id":
        const int32_t *ids
        ptrdiff_t count, limit

    struct gather_rows_t "gather_rows":
        const int32_t *ids
        const float *table
        float *rows
        ptrdiff_t count, dim
        int threads

    struct scatter_update_t "scatter_update":
        const int32_t *ids
        const float *grads
        rule_t rule
        const double *hyper
        float *table
        float *slots
        ptrdiff_t count, dim, vocabulary
        int threads

    struct dense_update_t "dense_update":
        const float *grad
        rule_t rule
        const double *hyper
        float *parameter
        float *slots
        ptrdiff_t count
        int threads

    struct bias_tanh_t "bias_tanh":
        const float *bias
        float *values
        ptrdiff_t batch, hidden
        int threads

    struct tanh_backward_t "tanh_backward":
        const float *values
        float *grad_bias
        float *grad_hidden
        ptrdiff_t batch, hidden
        int threads

    struct dropout_t "dropout":
        const uint8_t *mask
        float scale
        float *values
        ptrdiff_t count
        int threads

    struct layer_forward_t "layer_forward":
        const float *inputs
        const float *weight
        const float *bias
        float *values
        ptrdiff_t batch, width, hidden
        int linear
        int threads

    struct layer_backward_t "layer_backward":
        const float *inputs
        const float *values
        const float *weight
        float *grad_hidden
        float *grad_weight
        float *grad_bias
        float *grad_inputs
        ptrdiff_t batch, width, hidden
        int linear
        int threads

    enum precision_t "precision":
        PRECISION_FLOAT32, PRECISION_BFLOAT16

    struct words_scratch_t "words_scratch":
        ptrdiff_t batch, context, dim, hidden
        precision_t precision
        int threads

    struct words_forward_t "words_forward":
        const int32_t *contexts
        const float *embedding
        const float *weight
        const float *bias
        uint8_t *scratch
        float *values
        ptrdiff_t batch, context, dim, hidden
        precision_t precision
        int threads

    struct words_backward_t "words_backward":
        const int32_t *contexts
        const float *values
        const float *weight
        rule_t rule
        const double *hyper
        uint8_t *scratch
        float *grad_hidden
        float *grad_weight
        float *grad_bias
        float *embedding
        float *slots
        ptrdiff_t batch, context, dim, hidden, vocabulary
        precision_t precision
        int threads

    struct softmax_cross_entropy_t "softmax_cross_entropy":
        const int32_t *targets
        const float *weights
        const float *bias
        double *losses
        float *logits
        ptrdiff_t batch, vocabulary
        int threads

    struct softmax_step_t "softmax_step":
        ptrdiff_t batch, hidden_size, vocabulary
        const float *hidden
        const int32_t *targets
        const float *weights
        rule_t rule
        const double *hyper
        double *losses
        float *grad_hidden
        float *output_weight
        float *output_bias
        float *weight_slots
        float *bias_slots
        void *scratch
        size_t scratch_bytes
        precision_t precision
        int threads

    struct softmax_step_scratch_t "softmax_step_scratch":
        ptrdiff_t batch, hidden_size, vocabulary
        precision_t precision
        int keep, threads

    struct softmax_forward_t "softmax_forward":
        ptrdiff_t batch, hidden_size, vocabulary
        const float *hidden
        const int32_t *targets
        const float *output_weight
        const float *output_bias
        double *log_normalizer
        double *target_score
        void *scratch
        int threads

    struct softmax_forward_scratch_t "softmax_forward_scratch":
        ptrdiff_t batch, hidden_size, vocabulary
        int threads

    struct softmax_top_k_t "softmax_top_k":
        ptrdiff_t batch, hidden_size, vocabulary, k
        const float *hidden
        const float *output_weight
        const float *output_bias
        int32_t *ids
        float *scores
        void *scratch
        int threads

    struct softmax_top_k_scratch_t "softmax_top_k_scratch":
        ptrdiff_t batch, hidden_size, vocabulary, k
        int threads

    struct draw_noise_t "draw_noise":
        const uint64_t *bits
        const uint32_t *threshold
        const int32_t *alias
        int32_t *noise
        ptrdiff_t count, vocabulary
        int threads

    struct negative_scratch_t "negative_scratch":
        ptrdiff_t batch, block, negatives, hidden
        int threads

    struct negative_step_t "negative_step":
        const float *values
        const int32_t *targets
        const float *weights
        const int32_t *noise
        const float *offsets
        rule_t rule
        const double *hyper
        uint8_t *scratch
        double *losses
        float *grad_hidden
        float *output_weight
        float *output_bias
        float *weight_slots
        float *bias_slots
        ptrdiff_t batch, block, negatives, hidden, vocabulary
        int skip_target, threads

    struct kernels:
        ptrdiff_t (*find_bad_id)(const find_bad_id_t *) noexcept nogil
        int (*form_contexts)(const form_contexts_t *) noexcept nogil
        int (*gather_rows)(const gather_rows_t *) noexcept nogil
        int (*scatter_update)(const scatter_update_t *) noexcept nogil
        int (*dense_update)(const dense_update_t *) noexcept nogil
        int (*bias_tanh)(const bias_tanh_t *) noexcept nogil
        int (*tanh_backward)(const tanh_backward_t *) noexcept nogil
        int (*dropout)(const dropout_t *) noexcept nogil
        int (*layer_forward)(const layer_forward_t *) noexcept nogil
        int (*layer_backward)(const layer_backward_t *) noexcept nogil
        size_t (*words_scratch)(const words_scratch_t *) noexcept nogil
        int (*words_forward)(const words_forward_t *) noexcept nogil
        int (*words_backward)(const words_backward_t *) noexcept nogil
        int (*softmax_cross_entropy)(const softmax_cross_entropy_t *) noexcept nogil
        size_t (*softmax_step_scratch)(const softmax_step_scratch_t *) noexcept nogil
        int (*softmax_step)(const softmax_step_t *) noexcept nogil
        size_t (*softmax_forward_scratch)(const softmax_forward_scratch_t *) noexcept nogil
        int (*softmax_forward)(const softmax_forward_t *) noexcept nogil
        size_t (*softmax_top_k_scratch)(const softmax_top_k_scratch_t *) noexcept nogil
        int (*softmax_top_k)(const softmax_top_k_t *) noexcept nogil
        ptrdiff_t (*draw_noise)(const draw_noise_t *) noexcept nogil
        size_t (*negative_scratch)(const negative_scratch_t *) noexcept nogil
        int (*negative_step)(const negative_step_t *) noexcept nogil


cdef extern from "dispatch.h" nogil:
    struct level:
        const char *name
        const kernels *kernels
        int supported, bf16
    int dispatch_levels(level *levels)


cdef extern from "threads.h" nogil:
    int threads_available()
