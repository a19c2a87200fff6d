/* Keeps a service of the board running, and writes down how it is doing:
 *
 *     supervise FOLDER
 *     supervise start|stop|restart|reload|status FOLDER
 *
 * FOLDER/version names the version in force. Its script, versions/<id>/start, runs under sh in
 * FOLDER as a process group of its own, which never outlives this process. When it ends, it is
 * restarted, after pauses of 1, 2, 4 ... 60 s. versions/<id>/supervisor has lines "key value":
 *
 *     port                 required; /health is requested there every second until the service is
 *                          ready, and four times per silence_s after that
 *     listen               addresses, separated by commas, whose port is held for the service, which
 *                          listens on private/server.sock instead; see supervise_front.h
 *     tls                  yes: with listen, other machines reach the port by TLS alone, with what is in
 *                          FOLDER/tls.pem; see supervise_tls.h (no)
 *     drain_s              how long requests that it has may take before another version replaces it
 *                          (300); only with listen
 *     slots, slots_key     of how many slots it keeps what they hold over a restart, and a number that
 *                          two versions share that can read it (0, 0); only with listen, and with
 *                          llama-server's --slot-save-path private; see supervise_slots.h
 *     address              to connect to (127.0.0.1), IPv4 or IPv6; the service is not started
 *                          before the board has this address
 *     health               yes (default): ready when GET /health answers 200;
 *                          connect: ready when it accepts a connection (TLS)
 *     uid, gid             to run the service as; by default those of this process
 *     oom_score_adj, nice  of the service alone
 *     memory_limit_bytes   the service is killed when its processes hold more than this, not
 *                          counting pages of files
 *     log_bytes            size limit of each of log and log.1 (1 MiB), which get its output
 *     load_s               it has failed if not ready after this time (0: no limit)
 *     silence_s            it has failed if it stops answering for this long (60)
 *     stop_s               time from SIGTERM to SIGKILL (10)
 *     pause_s              the first pause (1); 0 means no pauses at all
 *     settled_s            after it was ready for this long, earlier failures are forgotten (600)
 *     failures             in a row before giving up (8): FOLDER/trial may name another version,
 *                          which then becomes the one in force, and trial is removed;
 *                          otherwise the exit status is 69
 *
 * With a word, it tells the supervisor of FOLDER that, and ends: start, away from the terminal; stop,
 * within 25 s, and restart; reload (SIGHUP); status, 3 where there is none.
 *
 * SIGHUP reads FOLDER/version again and restarts the service with it; if that version cannot be
 * used, the running one is left alone. SIGTERM and SIGINT stop the service. FOLDER/state is one JSON
 * object, written on each change and every minute; its times are seconds since boot. systemd is
 * notified as in sd_notify(3). Full storage does not stop the service: output that cannot be logged
 * is counted and dropped.
 *
 * Exit status: 0 when asked to stop, 2 for a wrong command line, 69 after giving up, 75 if FOLDER has
 * a supervisor already, 78 if FOLDER or its version cannot be used. */
#define _GNU_SOURCE
#include <sys/file.h>
#include <sys/signalfd.h>

#include "armload_line.h"
#include "supervise_child.h"
#include "supervise_command.h"
#include "supervise_front.h"
#include "supervise_health.h"
#include "supervise_notify.h"
#include "supervise_slots.h"

enum {
    GAVE_UP = 69,
    IS_HELD = 75,
    UNUSABLE = 78,
    TICK_MS = 1000,
    STATE_MS = 60000,
    SOON_MS = 5000, /* where storage is full */
    EXTEND_MS = 10000,
    LONGEST_PAUSE_S = 60,
    LOOK_SHARE = 400, /* counting memory may take one part in so many of the time */
    LOADING_SHARE = 8, /* of the time that it loads already, until it is asked again */
    END_BYTES = 32,
};

enum phase { LOADING, READY, PAUSING, ENDING, STOPPED, FAILED };

static const char *const PHASES[] = {"loading", "ready", "pausing", "loading", "stopped", "failed"};

struct version {
    char id[ID_BYTES];
    struct settings settings;
};

static struct {
    struct version version, next; /* next: what SIGHUP asks for */
    enum phase phase;
    bool stops, switches;
    const char *ended_for; /* while it is ended: as what that failure counts */
    int64_t started_ms, ready_ms, ended_ms; /* NEVER: not yet */
    int64_t drained_ms;                     /* until then, requests are finished */
    int64_t until_ms;                       /* of a pause, or of patience with one that ends */
    int64_t ask_ms, unanswered_ms, look_ms, state_ms, sign_ms, extend_ms, watchdog_ms;
    int64_t memory_bytes, told_dropped_bytes;
    int failures, restarts;
    char last_end[END_BYTES];
    char fell_from[ID_BYTES], fell_why[END_BYTES];
    bool is_told_ready, lacks_address, told_beside;
    int told_pem_changes;
    sigset_t mask;
} service = {.phase = PAUSING, .drained_ms = INT64_MAX, .started_ms = INT64_MAX, .ready_ms = INT64_MAX, .ended_ms = INT64_MAX};

static size_t append_time(char *line, size_t length, const char *name, int64_t at_ms)
{
    if (at_ms == NEVER)
        return armload_append(line, length, ",\"%s\":null", name);
    return armload_append(line, length, ",\"%s\":%" PRId64 ".%03d", name, at_ms / 1000, (int)(at_ms % 1000));
}

static size_t append_boot(char *line, size_t length)
{
    char text[SMALL_FILE_BYTES];
    if (!read_small_file("/proc/sys/kernel/random/boot_id", text))
        text[0] = '\0';
    return armload_append(line, length, ",\"boot_id\":\"%.*s\"", (int)strspn(text, "0123456789abcdef-"), text);
}

static enum pem_problem problem_of_certificate(void)
{
    unsigned problem = passing == NULL ? PEM_USED : (unsigned)passing->pem_problem;
    return problem < PEM_PROBLEM_COUNT ? (enum pem_problem)problem : PEM_UNUSABLE;
}

/* Whether the version beside this one has requests, or may get some. */
static bool has_beside(void)
{
    return passing != NULL && (passing->to == BESIDE || passing->busy[BESIDE] > 0);
}

/* The process that passes connections on may write anything there. */
static size_t append_certificate(char *line, size_t length)
{
    char sum[sizeof passing->certificate] = "";
    if (passing != NULL)
        memcpy(sum, passing->certificate, sizeof sum - 1);
    return armload_append(line, length, ",\"certificate\":\"%.*s\",\"certificate_problem\":\"%s\"",
                          (int)strspn(sum, "0123456789abcdef"), sum, PEM_PROBLEMS[problem_of_certificate()]);
}

static void put_state(int64_t now)
{
    static bool is_lost;
    char line[ARMLOAD_LINE_BYTES];
    size_t length = armload_append(line, 0, "{\"state\":\"%s\",\"version\":\"%s\",\"pid\":%d,\"child\":",
                                   PHASES[service.phase], service.version.id, (int)getpid());
    length = child.id > 0 ? armload_append(line, length, "%d", (int)child.id) : armload_append(line, length, "null");
    length = append_boot(line, length);
    length = append_time(line, length, "started_s", service.started_ms);
    length = append_time(line, length, "ready_s", service.ready_ms);
    length = armload_append(line, length, ",\"restarts\":%d,\"last_end\":", service.restarts);
    if (service.ended_ms == NEVER) {
        length = armload_append(line, length, "null");
    } else {
        length = armload_append(line, length, "{\"what\":\"%s\"", service.last_end);
        length = append_time(line, length, "at_s", service.ended_ms);
        length = armload_append(line, length, "}");
    }
    if (service.fell_from[0] == '\0')
        length = armload_append(line, length, ",\"fell_back\":null");
    else
        length = armload_append(line, length, ",\"fell_back\":{\"from\":\"%s\",\"why\":\"%s\"}", service.fell_from,
                                service.fell_why);
    service.told_beside = has_beside();
    length = armload_append(line, length, ",\"beside\":%s", service.told_beside ? "true" : "false");
    if (service.version.settings.with_tls)
        length = append_certificate(line, length);
    length = armload_append(line, length, ",\"log_dropped_bytes\":%" PRId64 ",\"memory_bytes\":%" PRId64 "}\n",
                            record.dropped_bytes, service.memory_bytes);
    bool is_put = replace_file("state", line, length);
    if (!is_put && !is_lost)
        tell("cannot write state: %s", strerror(errno));
    is_lost = !is_put;
    service.state_ms = now + (is_put ? STATE_MS : SOON_MS);
    service.told_dropped_bytes = record.dropped_bytes;
}

static void enter(enum phase phase, int64_t now)
{
    char text[128];
    service.phase = phase;
    if (passing != NULL && (phase == READY || passing->to == BEHIND))
        passing->to = phase == READY ? BEHIND : NOWHERE;
    if (phase == PAUSING || phase >= STOPPED)
        service.memory_bytes = 0;
    put_state(now);
    snprintf(text, sizeof text, "STATUS=%s, version %s\n", PHASES[phase], service.version.id);
    notify(text);
}

static _Noreturn void leave(enum phase phase, int status)
{
    notify("STOPPING=1\n");
    enter(phase, now_ms());
    close_front(); /* whoever starts it again at once finds the port free */
    exit(status);
}

static void mend_link(void)
{
    char wanted[ID_BYTES + 16], found[ID_BYTES + 16];
    snprintf(wanted, sizeof wanted, "versions/%s", service.version.id);
    ssize_t length = readlink("current", found, sizeof found);
    if (length == (ssize_t)strlen(wanted) && memcmp(found, wanted, (size_t)length) == 0)
        return;
    unlink(".current.new");
    if (symlink(wanted, ".current.new") != 0 || rename(".current.new", "current") != 0)
        tell("cannot link current: %s", strerror(errno));
}

static void adopt(const struct version *version)
{
    service.version = *version;
    service.failures = 0;
    record.most_bytes = version->settings.log_bytes;
    mend_link();
}

/* Where there is another version to fall back to. Storage that is full must not keep it from
 * running now; then the next boot tries the failing one again, and comes back here. */
static bool fall_back(const char *why)
{
    struct version former;
    char problem[PROBLEM_BYTES];
    if (!read_id("trial", former.id) || strcmp(former.id, service.version.id) == 0)
        return false;
    if (!read_version(former.id, &former.settings, problem)) {
        tell("cannot fall back to version %s: %s", former.id, problem);
        return false;
    }
    char line[ID_BYTES + 1];
    int length = snprintf(line, sizeof line, "%s\n", former.id);
    if (replace_file("version", line, (size_t)length)) {
        sync_folder();
        unlink("trial");
        sync_folder();
    } else {
        tell("cannot write version: %s", strerror(errno));
    }
    memcpy(service.fell_from, service.version.id, sizeof service.fell_from);
    snprintf(service.fell_why, sizeof service.fell_why, "%s", why);
    tell("version %s failed: %s; falling back to version %s", service.version.id, why, former.id);
    adopt(&former);
    return true;
}

static void fail(const char *what, int64_t now)
{
    const struct settings *settings = &service.version.settings;
    if (service.ready_ms != NEVER && now - service.ready_ms >= settings->settled_s * 1000)
        service.failures = 0;
    service.failures++;
    service.ready_ms = NEVER;
    service.ended_ms = now;
    snprintf(service.last_end, sizeof service.last_end, "%s", what);
    service.until_ms = now;
    if (service.failures < settings->failures) {
        int64_t pause_s = settings->pause_s;
        for (int i = 1; i < service.failures && pause_s < LONGEST_PAUSE_S; i++)
            pause_s *= 2;
        pause_s = pause_s < LONGEST_PAUSE_S ? pause_s : LONGEST_PAUSE_S;
        service.until_ms += pause_s * 1000;
        tell("version %s failed: %s; restarting in %d s", service.version.id, what, (int)pause_s);
    } else if (!fall_back(what)) {
        tell("version %s failed: %s; giving up after %d failures in a row", service.version.id, what, service.failures);
        leave(FAILED, GAVE_UP);
    }
    service.restarts++;
    enter(PAUSING, now);
}

static void begin(int64_t now)
{
    bool lacks_address = !has_address(&service.version.settings);
    if (lacks_address && !service.lacks_address)
        tell("version %s: waiting until the board has its address", service.version.id);
    service.lacks_address = lacks_address;
    if (lacks_address) {
        service.until_ms = now + TICK_MS;
        return;
    }
    if (!open_front(&service.version.settings)) {
        tell("cannot listen on port %d: %s", (int)service.version.settings.port, strerror(errno));
        fail("port not available", now);
        return;
    }
    service.started_ms = now;
    service.ready_ms = NEVER;
    service.ask_ms = service.look_ms = now;
    service.unanswered_ms = NEVER;
    service.ended_for = NULL;
    if (!start_child(service.version.id, &service.version.settings, &service.mask)) {
        tell("cannot start a process: %s", strerror(errno));
        fail("not started", now);
        return;
    }
    enter(LOADING, now);
}

/* Ends it: as a failure for some reason, or, without one, because that is asked for. */
static void end(const char *reason, int number, int64_t now)
{
    if (reason != NULL)
        tell("stopping version %s: %s", service.version.id, reason);
    service.ended_for = reason;
    service.until_ms = now + service.version.settings.stop_s * 1000;
    service.phase = ENDING;
    service.drained_ms = NEVER;
    if (passing != NULL && passing->to == BEHIND)
        passing->to = NOWHERE;
    end_question(SILENT);
    signal_child(number);
}

static void look_at_memory(int64_t now)
{
    service.memory_bytes = group_bytes();
    int64_t rest_ms = (now_ms() - now) * LOOK_SHARE;
    service.look_ms = now + (rest_ms > TICK_MS ? rest_ms : TICK_MS);
    if (service.memory_bytes > service.version.settings.memory_limit_bytes)
        end("memory limit", SIGKILL, now); /* the memory is needed now */
}

/* A server that is soon ready is soon noticed; one that loads for long is left to it. */
static int64_t pause_between_questions_ms(int64_t now)
{
    int64_t share_ms = service.phase == LOADING ? (now - service.started_ms) / LOADING_SHARE : TICK_MS;
    if (share_ms < RETRY_MS)
        return RETRY_MS;
    return share_ms < TICK_MS ? share_ms : TICK_MS;
}

static void look_at_health(int64_t now)
{
    const struct settings *settings = &service.version.settings;
    enum answer answer = PENDING;
    if (question.socket >= 0)
        answer = hear(settings, now);
    else if (now >= service.ask_ms)
        answer = ask(settings, now);
    if (answer == PENDING)
        return;
    service.ask_ms = now + pause_between_questions_ms(now);
    if (answer == SILENT) {
        if (service.unanswered_ms == NEVER)
            service.unanswered_ms = now;
    } else {
        service.unanswered_ms = NEVER;
    }
    if (service.phase == LOADING && answer == HEALTHY) {
        service.ready_ms = now;
        enter(READY, now);
        restore_slots(settings);
    }
    if (service.phase == READY && answer != SILENT)
        service.ask_ms = now + settings->silence_s * 1000 / QUESTIONS_IN_SILENCE;
}

static void look_after(int64_t now)
{
    const struct settings *settings = &service.version.settings;
    look_at_health(now);
    if (now >= service.look_ms)
        look_at_memory(now);
    if (service.phase == LOADING && settings->load_s > 0 && now - service.started_ms >= settings->load_s * 1000)
        end("not ready in time", SIGTERM, now);
    if (service.phase == READY && service.unanswered_ms != NEVER
        && now - service.unanswered_ms >= settings->silence_s * 1000)
        end("no answer", SIGTERM, now);
}

static void reach_out(int64_t now)
{
    if (service.ready_ms != NEVER && !service.is_told_ready)
        service.is_told_ready = notify("READY=1\n");
    if (!service.is_told_ready && now >= service.extend_ms) {
        notify("EXTEND_TIMEOUT_USEC=30000000\n");
        service.extend_ms = now + EXTEND_MS;
    }
    if (now >= service.sign_ms) {
        notify("WATCHDOG=1\n");
        service.sign_ms = now + service.watchdog_ms;
    }
    if (record.dropped_bytes != service.told_dropped_bytes && service.state_ms > now + SOON_MS)
        service.state_ms = now + SOON_MS;
    if (passing != NULL && passing->pem_changes != service.told_pem_changes) {
        service.told_pem_changes = passing->pem_changes;
        enum pem_problem problem = problem_of_certificate();
        if (problem == PEM_USED)
            tell("%s: its certificate is in force", PEM_FILE);
        else
            tell("%s: %s; keeping the certificate that is in force, if any", PEM_FILE, PEM_PROBLEMS[problem]);
        service.state_ms = now;
    }
    if (now >= service.state_ms || (service.told_beside && !has_beside()))
        put_state(now);
}

static void end_of_child(int64_t now)
{
    char what[END_BYTES];
    int status = bury_child();
    service.drained_ms = NEVER;
    end_question(SILENT);
    if (WIFSIGNALED(status))
        snprintf(what, sizeof what, "signal %d", WTERMSIG(status));
    else
        snprintf(what, sizeof what, "exit %d", WEXITSTATUS(status));
    if (!service.stops && !service.switches)
        fail(service.ended_for != NULL ? service.ended_for : what, now);
    else
        service.phase = PAUSING;
}

/* A version that cannot be used must not cost the running one. */
static void read_next(void)
{
    char problem[PROBLEM_BYTES];
    if (!read_id("version", service.next.id))
        tell("cannot read version: %s; keeping version %s", strerror(errno), service.version.id);
    else if (!read_version(service.next.id, &service.next.settings, problem))
        tell("cannot use version %s: %s; keeping version %s", service.next.id, problem, service.version.id);
    else
        service.switches = true;
}

/* For a version that could not read them, nothing is saved. */
static bool has_to_save(int64_t now)
{
    const struct settings *settings = &service.version.settings;
    bool are_read = service.stops || service.next.settings.slots_key == settings->slots_key;
    return service.phase == READY && are_read && saves_slots(settings, now);
}

/* Requests that come now wait for the next version, unless it is there to take them; those that the
 * server has are finished before. */
static void drain(int64_t now)
{
    bool is_held = service.phase == READY && passing != NULL && front.count > 0;
    service.drained_ms = now + (is_held ? service.version.settings.drain_s * 1000 : 0);
    if (passing != NULL)
        passing->to = BESIDE;
}

static bool is_drained(int64_t now)
{
    return service.drained_ms != NEVER && (now >= service.drained_ms || passing->busy[BEHIND] == 0);
}

static void take_signals(int signals, int64_t now)
{
    struct signalfd_siginfo about;
    while (read(signals, &about, sizeof about) == (ssize_t)sizeof about) {
        if (about.ssi_signo == SIGHUP)
            read_next();
        else if (about.ssi_signo != SIGCHLD)
            service.stops = true;
    }
    if (service.stops && service.phase <= READY) {
        if (!has_to_save(now))
            end(NULL, SIGTERM, now);
    } else if (service.switches && service.phase <= READY && service.drained_ms == NEVER)
        drain(now);
}

static void go_on(int64_t now)
{
    look_at_slots();
    if (service.phase == PAUSING && service.stops) {
        service.ready_ms = NEVER;
        leave(STOPPED, 0);
    }
    if (service.phase == PAUSING && service.switches) {
        service.switches = false;
        if (strcmp(service.next.id, service.version.id) != 0)
            service.fell_from[0] = '\0';
        tell("switching from version %s to version %s", service.version.id, service.next.id);
        adopt(&service.next);
        service.until_ms = now;
    }
    if (service.phase == PAUSING && now >= service.until_ms)
        begin(now);
    else if (service.phase == ENDING && now >= service.until_ms) {
        signal_child(SIGKILL);
        service.until_ms = NEVER;
    } else if (service.phase <= READY) {
        look_after(now);
        if (service.phase <= READY && is_drained(now) && !has_to_save(now))
            end(NULL, SIGTERM, now);
    }
    if (front.count > 0 && service.phase < STOPPED)
        open_front(&front.settings);
}

static void wait_for_news(int signals, int64_t now)
{
    int64_t wake_ms = now + (service.drained_ms == NEVER ? TICK_MS : RETRY_MS);
    const int64_t times[] = {service.until_ms, service.sign_ms, service.ask_ms};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i] > now && times[i] < wake_ms)
            wake_ms = times[i];
    struct pollfd files[] = {
        {.fd = signals, .events = POLLIN},
        {.fd = child.out, .events = POLLIN},
        {.fd = question.socket, .events = question.is_sent ? POLLIN : POLLOUT},
    };
    poll(files, 3, (int)(wake_ms - now));
    take_output();
}

/* Returns where signals can be read. */
static int block_signals(void)
{
    sigset_t handled;
    sigemptyset(&handled);
    for (size_t i = 0; i < 4; i++)
        sigaddset(&handled, (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP}[i]);
    sigprocmask(SIG_BLOCK, &handled, &service.mask);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    return signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The command that starts it over a connection may have a limit of CPU time; its server must not. */
static void lift_cpu_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CPU, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_CPU, &limit);
}

static int take_folder(const char *folder)
{
    if (chdir(folder) != 0) {
        fprintf(stderr, "supervise: %s: %s\n", folder, strerror(errno));
        return UNUSABLE;
    }
    /* Who can open it can hold it. */
    int lock = open("lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0) {
        fprintf(stderr, "supervise: %s/lock: %s\n", folder, strerror(errno));
        return UNUSABLE;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        fprintf(stderr, "supervise: %s already has a supervisor running\n", folder);
        return IS_HELD;
    }
    return 0;
}

static void read_first_version(void)
{
    struct version first;
    char problem[PROBLEM_BYTES];
    if (!read_id("version", first.id)) {
        tell("cannot read version: %s", strerror(errno));
        leave(FAILED, UNUSABLE);
    }
    bool is_usable = read_version(first.id, &first.settings, problem);
    if (is_usable) {
        adopt(&first);
        return;
    }
    memcpy(service.version.id, first.id, sizeof first.id);
    tell("cannot use version %s: %s", first.id, problem);
    service.ended_ms = now_ms();
    snprintf(service.last_end, sizeof service.last_end, "unusable version");
    if (!fall_back("unusable version"))
        leave(FAILED, UNUSABLE);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return carry_out(argc == 3 ? argv[1] : "", argv[0], argv[argc - 1]);
    int signals = block_signals();
    if (signals < 0) {
        fprintf(stderr, "supervise: cannot read signals: %s\n", strerror(errno));
        return UNUSABLE;
    }
    int status = take_folder(argv[1]);
    if (status != 0)
        return status;
    lift_cpu_limit();
    service.watchdog_ms = read_watchdog_ms();
    service.sign_ms = service.watchdog_ms == NEVER ? NEVER : 0;
    read_first_version();
    for (;;) {
        int64_t now = now_ms();
        go_on(now);
        reach_out(now);
        wait_for_news(signals, now);
        now = now_ms();
        take_signals(signals, now);
        if (has_ended())
            end_of_child(now);
    }
}
