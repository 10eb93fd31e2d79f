// Forks while another thread starts and stops: the child finds nothing half done, can stop, start and refresh, and
// sees its own calls exactly.
#include "hook_api.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int done;

static void *start_and_stop(void *argument) {
    (void)argument;
    unsigned long rounds = 0;
    for (; !done; rounds++) {
        start();
        hook->refresh();
        stop();
    }
    CHECK(rounds > 20, "only %lu rounds", rounds);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    void *library = dlopen(beside(argv[0], "liblazy.so"), RTLD_LAZY);
    CHECK(library, "%s", dlerror());
    void *(*first)(size_t) = function(library, "first");
    load_hook();
    pthread_t thread;
    pthread_create(&thread, NULL, start_and_stop, NULL);
    unsigned children = atoi(argv[1]);
    for (unsigned i = 0; i < children; i++) {
        pid_t child = fork();
        CHECK(child >= 0, "fork");
        if (!child) {
            alarm(20);
            hook->refresh();
            hook->stop();
            start();
            memintro_values before = totals();
            free(first(123));
            memintro_values after = totals();
            CHECK(after.allocated_bytes - before.allocated_bytes == 123, "%lu", after.allocated_bytes);
            stop();
            free(first(123));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child, "waitpid");
        CHECK(status == 0, "child %u ended with status %x", i, status);
    }
    done = 1;
    pthread_join(thread, NULL);
    return 0;
}
