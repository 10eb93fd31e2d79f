// The C++ runtime comes and goes, with the libraries of two threads that call it at once, while the program starts, looks
// and stops: no call may reach where it was.
#include "hook_api.h"

#include <pthread.h>
#include <unistd.h>

static char lazy[4096], now[4096];
static volatile int done;

static void *load_and_unload(void *path) {
    unsigned long loaded = 0;
    while (!done) {
        void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        CHECK(library, "%s", dlerror());
        // Straight from the loader, or by a look-up that is looked at.
        void (*run)(void) = function(library, "run");
        for (int i = 0; i < 3; i++) run();
        dlclose(library);
        loaded++;
    }
    CHECK(loaded > 20, "only %lu libraries loaded", loaded);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    strcpy(lazy, beside(argv[0], "libcxx_lazy.so"));
    strcpy(now, beside(argv[0], "libcxx_now.so"));
    load_hook();
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, load_and_unload, lazy);
    pthread_create(&threads[1], NULL, load_and_unload, now);
    unsigned rounds = atoi(argv[1]);
    for (unsigned round = 0; round < rounds; round++) {
        start();
        for (int i = 0; i < 20; i++) {
            hook->refresh();
            usleep(100);
        }
        stop();
    }
    done = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
