#include "armload_experts.h"

#include "armload_allocation.h"
#include "armload_cache.h"
#include "armload_pieces.h"
#include "armload_reader.h"
#include "armload_slots.h"

#include <stdlib.h>

// Where so many of a layer's experts are used, all of them are read, before it is known which.
static const double NEARLY_ALL = 0.9;

enum what { CHOSEN, BEFORE, AFTER };

struct event {
    const struct ggml_tensor * node; // after which it is
    enum what                  what;
    struct armload_layer *     layer;
    int                        number; // of the matrix
};

static struct {
    int64_t                 nearly_all; // so many choices are of nearly all experts
    int64_t                 used_bytes;
    // of the graph under way
    struct event *          events;
    int                     event_room;
    int                     event_count;
    int                     next_event;
    struct armload_layer ** order;
    int                     order_count;
} experts = { .nearly_all = INT64_MAX };

static bool uses_experts(const struct ggml_tensor * node) {
    struct armload_piece found;
    return node->op == GGML_OP_MUL_MAT_ID && armload_find_in_file(node->src[0]->data, &found);
}

static bool is_plain(const struct ggml_tensor * tensor) {
    return tensor->view_src == NULL && ggml_is_contiguous(tensor) && tensor->ne[3] == 1;
}

static const char * not_collected(const char * reason) {
    armload_forget_layers();
    return reason;
}

const char * armload_collect_experts(struct ggml_cgraph * graph) {
    const struct ggml_tensor * choice = NULL;
    struct armload_layer *     layer  = NULL;
    armload_forget_layers();
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        if (!uses_experts(node)) {
            continue;
        }
        const struct ggml_tensor * tensor = node->src[0];
        struct armload_layer *     known  = NULL;
        if (!is_plain(tensor) || armload_matrix_at(tensor->data, &known) != NULL) {
            return not_collected("the graph uses its experts in a way that is not known");
        }
        if (layer == NULL || choice != node->src[2] || layer->expert_count != tensor->ne[2]) {
            layer  = armload_add_layer(tensor->ne[2]);
            choice = node->src[2];
        }
        if (layer->matrix_count == ARMLOAD_MOST_MATRICES) {
            return not_collected("its experts have more matrices than are known");
        }
        armload_add_matrix(layer, tensor);
    }
    return NULL;
}

static void add_event(const struct ggml_tensor * node, enum what what, struct armload_layer * layer, int number) {
    if (experts.event_count == experts.event_room) {
        experts.event_room = 2 * experts.event_room + 64;
        experts.events     = armload_resized(experts.events, (size_t) experts.event_room * sizeof(*experts.events));
    }
    experts.events[experts.event_count++] = (struct event) { node, what, layer, number };
}

// The last node before one after which the numbers that it uses are known, and the layer before is computed; NULL
// if that is so from the start.
static const struct ggml_tensor * chooser_of(struct ggml_cgraph * graph, int index) {
    const struct ggml_tensor * choice = ggml_graph_node(graph, index)->src[2];
    const struct ggml_tensor * root   = choice->view_src != NULL ? choice->view_src : choice;
    const struct ggml_tensor * latest = experts.event_count > 0 ? experts.events[experts.event_count - 1].node : NULL;
    while (index-- > 0) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        if (node == root || node->view_src == root || node == latest) {
            return node;
        }
    }
    return NULL;
}

static bool begin_layer(struct armload_layer * layer, struct ggml_cgraph * graph, int index) {
    struct ggml_tensor * node = ggml_graph_node(graph, index);
    if (layer->choice != NULL || node->src[2]->type != GGML_TYPE_I32) {
        return false;
    }
    layer->choice      = node->src[2];
    const size_t count = (size_t) ggml_nelements(layer->choice);
    layer->each_number = armload_resized(layer->each_number, count * sizeof(*layer->each_number));
    layer->numbers     = *layer->choice;
    layer->numbers.data     = layer->each_number;
    layer->numbers.view_src = NULL;
    layer->numbers.nb[0]    = sizeof(int32_t);
    layer->numbers.nb[1]    = (size_t) layer->choice->ne[0] * sizeof(int32_t);
    layer->numbers.nb[2] = layer->numbers.nb[3] = layer->numbers.nb[1] * (size_t) layer->choice->ne[1];
    layer->position      = experts.order_count;
    experts.order[experts.order_count++] = layer;
    add_event(chooser_of(graph, index), CHOSEN, layer, 0);
    return true;
}

static bool are_whole(void) {
    for (int index = 0; index < experts.order_count; index++) {
        for (int number = 0; number < experts.order[index]->matrix_count; number++) {
            if (experts.order[index]->each[number].node == NULL) {
                return false;
            }
        }
    }
    return true;
}

static bool add_events(struct ggml_cgraph * graph) {
    struct armload_layer * latest = NULL;
    experts.order = armload_resized(experts.order, ((size_t) armload_layers().count + 1) * sizeof(*experts.order));
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        struct ggml_tensor *    node   = ggml_graph_node(graph, index);
        struct armload_layer *  layer  = NULL;
        struct armload_matrix * matrix = NULL;
        if (node->op == GGML_OP_MUL_MAT_ID && !ggml_is_empty(node)) {
            matrix = armload_matrix_at(node->src[0]->data, &layer);
        }
        if (matrix == NULL) {
            continue;
        }
        if (layer != latest && !begin_layer(layer, graph, index)) {
            return false;
        }
        latest = layer;
        if (matrix->node != NULL || node->src[2] != layer->choice) {
            return false;
        }
        matrix->node = node;
        add_event(index > 0 ? ggml_graph_node(graph, index - 1) : NULL, BEFORE, layer, (int) (matrix - layer->each));
        add_event(node, AFTER, layer, (int) (matrix - layer->each));
    }
    return are_whole();
}

static void leave_graph(void) {
    const struct armload_layers layers = armload_layers();
    for (int index = 0; index < layers.count; index++) {
        struct armload_layer * layer = &layers.each[index];
        for (int number = 0; number < layer->matrix_count; number++) {
            struct armload_matrix * matrix = &layer->each[number];
            if (matrix->its_source != NULL) {
                matrix->node->src[0] = matrix->its_source;
                matrix->node->src[2] = layer->choice;
            }
            matrix->node = matrix->its_source = NULL;
        }
        layer->choice    = NULL;
        layer->is_placed = layer->is_chosen = layer->is_passed = false;
        layer->passing   = layer->move_count = 0;
    }
    experts.event_count = experts.next_event = experts.order_count = 0;
}

static void use_slots(void) {
    for (int index = 0; index < experts.order_count; index++) {
        struct armload_layer * layer = experts.order[index];
        for (int number = 0; number < layer->matrix_count; number++) {
            struct armload_matrix * matrix = &layer->each[number];
            if (matrix->node != NULL) {
                matrix->its_source   = matrix->node->src[0];
                matrix->node->src[0] = &matrix->shown;
                matrix->node->src[2] = &layer->numbers;
            }
        }
    }
}

static bool is_ahead(const struct armload_layer * layer) {
    return ggml_nelements(layer->choice) >= experts.nearly_all;
}

static struct armload_layer * next_of(const struct armload_layer * layer) {
    return layer->position + 1 < experts.order_count ? experts.order[layer->position + 1] : NULL;
}

static void choose(struct armload_layer * layer) {
    int used = 0;
    armload_lock_layers();
    if (layer->position > 0) {
        armload_pass_layer(experts.order[layer->position - 1]);
    }
    armload_count_uses(layer);
    layer->is_chosen = true;
    if (!layer->is_placed) {
        armload_read_chosen(layer);
    }
    for (int expert = 0; expert < layer->expert_count; expert++) {
        used += layer->is_used[expert];
    }
    experts.used_bytes += used * armload_expert_bytes(layer);
    const int64_t choices = ggml_nelements(layer->choice);
    if (used >= NEARLY_ALL * layer->expert_count) {
        experts.nearly_all = choices < experts.nearly_all ? choices : experts.nearly_all;
    } else if (choices >= experts.nearly_all) {
        experts.nearly_all = INT64_MAX;
    }
    int32_t * number = layer->each_number;
    for (int64_t token = 0; token < layer->choice->ne[1]; token++) {
        for (int64_t at = 0; at < layer->choice->ne[0]; at++) {
            *number++ = layer->slot_of[armload_chosen(layer, token, at)];
        }
    }
    if (layer->choice->ne[1] > 1) {
        armload_choose_moves(layer);
    }
    armload_unlock_layers();
}

// A matrix's part of the window is free for the next layer.
static void passed(struct armload_layer * layer, int number) {
    struct armload_layer * const next = next_of(layer);
    armload_move_experts(layer, number);
    if (next != NULL && is_ahead(next)) {
        armload_lock_layers();
        const int end = number + 1 == layer->matrix_count ? ARMLOAD_MOST_MATRICES : number + 1;
        for (int each = number; each < end; each++) {
            armload_read_ahead(next, each);
        }
        armload_unlock_layers();
    }
}

static bool is_needed(const struct event * event) {
    switch (event->what) {
        case CHOSEN:
            return true;
        case BEFORE:
            return !armload_are_read(&event->layer->each[event->number].waiting);
        case AFTER:
            break;
    }
    const struct armload_layer * next = next_of(event->layer);
    return event->layer->move_count > 0 || (next != NULL && is_ahead(next));
}

static void act(const struct event * event) {
    switch (event->what) {
        case CHOSEN:
            choose(event->layer);
            break;
        case BEFORE:
            armload_await_requests(&event->layer->each[event->number].waiting);
            break;
        case AFTER:
            passed(event->layer, event->number);
            break;
    }
}

bool armload_experts_follow(const struct ggml_tensor * node) {
    while (experts.next_event < experts.event_count && experts.events[experts.next_event].node == node) {
        if (is_needed(&experts.events[experts.next_event])) {
            return true;
        }
        experts.next_event++;
    }
    return false;
}

void armload_follow_with_experts(const struct ggml_tensor * node) {
    while (experts.next_event < experts.event_count && experts.events[experts.next_event].node == node) {
        act(&experts.events[experts.next_event++]);
    }
}

bool armload_enter_experts(struct ggml_cgraph * graph) {
    armload_lock_layers();
    const bool done = add_events(graph);
    if (done) {
        use_slots();
        if (experts.order_count > 0 && is_ahead(experts.order[0])) {
            for (int number = 0; number < ARMLOAD_MOST_MATRICES; number++) {
                armload_read_ahead(experts.order[0], number);
            }
        }
    } else {
        leave_graph();
    }
    armload_unlock_layers();
    if (done) {
        armload_follow_with_experts(NULL);
    }
    return done;
}

bool armload_leave_experts(void) {
    armload_lock_layers();
    const bool done = experts.next_event == experts.event_count;
    for (int index = 0; index < experts.order_count; index++) {
        armload_pass_layer(experts.order[index]);
    }
    leave_graph();
    armload_unlock_layers();
    return done;
}

struct armload_experts armload_experts(void) {
    armload_lock_layers();
    const struct armload_layers layers = armload_layers();
    struct armload_experts      state  = {
        .bytes        = armload_experts_bytes(),
        .held_bytes   = armload_experts_held_bytes(),
        .window_bytes = armload_experts_window_bytes(),
        .used_bytes   = experts.used_bytes,
        .missed_bytes = armload_missed_bytes(),
    };
    for (int index = 0; index < layers.count; index++) {
        state.slot_bytes += armload_expert_bytes(&layers.each[index]) * layers.each[index].slots;
    }
    armload_unlock_layers();
    return state;
}
