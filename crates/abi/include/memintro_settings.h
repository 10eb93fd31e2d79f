/* Made by `rake settings` from lib/memintro/support/settings.rb. */
#ifndef MEMINTRO_SETTINGS_H
#define MEMINTRO_SETTINGS_H

#include <stdint.h>

typedef struct {
    uint32_t mode;
    uint64_t sample_bytes, stack_depth, max_sites, max_tracker_bytes, seed;
} memintro_start_options;

#endif
