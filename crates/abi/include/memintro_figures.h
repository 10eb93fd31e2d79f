/* Made by `rake figures` from crates/abi/src/lists.rs. */
#ifndef MEMINTRO_FIGURES_H
#define MEMINTRO_FIGURES_H

#include <stdint.h>

enum { MEMINTRO_VERSION = 17038 };

typedef struct {
    uint64_t value;
    double variance, skew;
} memintro_estimated;

typedef struct {
    memintro_estimated allocated_bytes;
    memintro_estimated freed_bytes;
    memintro_estimated allocations;
    memintro_estimated frees;
    uint64_t missed_frees;
    uint64_t tracker_bytes;
    uint64_t dropped;
    uint64_t sites;
    uint64_t generation;
    uint64_t estimated;
} memintro_figures;

typedef struct {
    memintro_estimated allocations;
    memintro_estimated frees;
    memintro_estimated total_bytes;
    memintro_estimated freed_bytes;
    memintro_estimated age_total;
    uint64_t max_lifespan;
    memintro_estimated marked_bytes;
    double age_covariance;
    uint64_t estimated;
} memintro_blocks;

typedef struct {
    memintro_estimated allocations;
    memintro_estimated frees;
    memintro_estimated total_bytes;
    memintro_estimated freed_bytes;
    uint64_t marked_bytes;
    memintro_estimated old_objects;
    memintro_estimated old_bytes;
    uint64_t estimated;
} memintro_objects;

/* The totals without what is known of their errors. */
typedef struct {
    uint64_t allocated_bytes;
    uint64_t freed_bytes;
    uint64_t allocations;
    uint64_t frees;
    uint64_t missed_frees;
    uint64_t tracker_bytes;
    uint64_t dropped;
    uint64_t sites;
    uint64_t generation;
    uint64_t estimated;
} memintro_values;

static inline memintro_values memintro_values_of(const memintro_figures *all) {
    memintro_values values;
    values.allocated_bytes = all->allocated_bytes.value;
    values.freed_bytes = all->freed_bytes.value;
    values.allocations = all->allocations.value;
    values.frees = all->frees.value;
    values.missed_frees = all->missed_frees;
    values.tracker_bytes = all->tracker_bytes;
    values.dropped = all->dropped;
    values.sites = all->sites;
    values.generation = all->generation;
    values.estimated = all->estimated;
    return values;
}

#endif
