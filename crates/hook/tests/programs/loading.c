// One thread loads and unloads libraries without pause, full RELRO ones among them, and another looks at all slots,
// while the program starts, refreshes and stops: a library that is half relocated must be left alone, none that is gone
// be written to, and no thread waits for ever.
#include "hook_api.h"

#include <pthread.h>
#include <unistd.h>

static char full_relro[4096], lazy[4096];
static volatile int done;

static void *load_and_unload(void *argument) {
    (void)argument;
    unsigned long loaded = 0;
    while (!done) {
        const char *path = loaded % 2 ? full_relro : lazy;
        void *library = dlopen(path, loaded % 2 ? RTLD_NOW : RTLD_LAZY);
        CHECK(library, "%s", dlerror());
        void *(*allocate)(size_t) = function(library, loaded % 2 ? "allocate" : "first");
        free(allocate(100));
        dlclose(library);
        loaded++;
    }
    CHECK(loaded > 20, "only %lu libraries loaded", loaded);
    return NULL;
}

static void count(void *context, const memintro_patch *entry) {
    // The path is read while its library may just be going away.
    *(unsigned long *)context += strlen(entry->module) > 0;
}

static void *look(void *argument) {
    (void)argument;
    unsigned long entries = 0;
    while (!done) {
        hook->patches(&entries, count);
        hook->refresh();
    }
    CHECK(entries > 100, "only %lu entries seen", entries);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    strcpy(full_relro, beside(argv[0], "libfull.so"));
    strcpy(lazy, beside(argv[0], "liblazy.so"));
    load_hook();
    pthread_t loading, looking;
    pthread_create(&loading, NULL, load_and_unload, NULL);
    pthread_create(&looking, NULL, look, NULL);
    unsigned rounds = atoi(argv[1]);
    for (unsigned round = 0; round < rounds; round++) {
        start();
        for (int i = 0; i < 10; i++) {
            hook->refresh();
            usleep(100);
        }
        stop();
    }
    done = 1;
    pthread_join(loading, NULL);
    pthread_join(looking, NULL);
    return 0;
}
