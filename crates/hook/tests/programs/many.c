// What start, stop and a refresh with nothing to do take with many modules loaded: prints the processor time of the three
// in microseconds, five times.
#include "hook_api.h"

#include <time.h>

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    (void)argc;
    unsigned count = atoi(argv[1]);
    void *(*last)(size_t) = NULL;
    for (unsigned i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "libmany%u.so", i);
        void *library = dlopen(beside(argv[0], name), RTLD_LAZY);
        CHECK(library, "%s", dlerror());
        last = function(library, "allocate");
    }
    load_hook();
    for (int round = 0; round < 5; round++) {
        double begin = now_us();
        start();
        double started = now_us();
        memintro_values before = totals();
        free(last(77));
        CHECK(totals().allocated_bytes - before.allocated_bytes == 77, "not seen");
        if (!round) CHECK(count_slots("libmany", "malloc", PATCHED, NULL) == count, "not all");
        double verify = now_us();
        hook->refresh();
        double verified = now_us();
        stop();
        printf("%.0f %.0f %.0f\n", started - begin, now_us() - verified, verified - verify);
    }
    return 0;
}
