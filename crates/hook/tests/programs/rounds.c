// Rounds of start and stop, as many as the argument says, while four threads allocate: nothing crashes, no block is
// damaged, and nothing stays behind in memory.
#include "hook_api.h"

#include <pthread.h>
#include <unistd.h>

static volatile int done;

static void *allocate(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    unsigned char *blocks[64] = {0};
    size_t sizes[64] = {0};
    while (!done) {
        unsigned i = rand_r(&seed) % 64;
        if (blocks[i]) {
            CHECK(blocks[i][0] == (unsigned char)i && blocks[i][sizes[i] - 1] == (unsigned char)i, "damaged");
            if (rand_r(&seed) % 4) {
                free(blocks[i]);
                blocks[i] = NULL;
                continue;
            }
        }
        sizes[i] = 1 + rand_r(&seed) % 2000;
        blocks[i] = realloc(blocks[i], sizes[i]);
        memset(blocks[i], i, sizes[i]);
    }
    for (unsigned i = 0; i < 64; i++) free(blocks[i]);
    return NULL;
}

static unsigned count_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned lines = 0;
    for (int c; (c = fgetc(maps)) != EOF;) lines += c == '\n';
    fclose(maps);
    return lines;
}

static long resident_pages(void) {
    FILE *statm = fopen("/proc/self/statm", "r");
    long size, resident;
    CHECK(fscanf(statm, "%ld %ld", &size, &resident) == 2, "statm");
    fclose(statm);
    return resident;
}

int main(int argc, char **argv) {
    (void)argc;
    unsigned rounds = atoi(argv[1]);
    load_hook();
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, allocate, (void *)(i + 1));
    unsigned mappings = 0;
    long pages = 0;
    uint64_t seen = 0;
    for (unsigned round = 0; round < rounds; round++) {
        start();
        if (round % 10 == 0) usleep(100);
        memintro_values figures = totals();
        seen += figures.allocations;
        CHECK(figures.frees <= figures.allocations, "%lu frees of %lu", figures.frees, figures.allocations);
        stop();
        if (round == rounds / 10) {
            mappings = count_mappings();
            pages = resident_pages();
        }
    }
    CHECK(seen > rounds / 10, "hardly anything was seen: %lu", seen);
    CHECK(count_mappings() <= mappings + 4, "%u mappings became %u", mappings, count_mappings());
    CHECK(resident_pages() <= pages + 512, "%ld pages became %ld", pages, resident_pages());
    done = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return 0;
}
