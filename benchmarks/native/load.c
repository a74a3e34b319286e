/* load: opens concurrent HTTP/1.1 streams against a server and measures what comes back.
 *
 *   load --port P --path /run --body FILE -c CONCURRENCY -n REQUESTS [--accept TYPE] [--header LINE] [--match TEXT | --arm NUMBER]
 *        [--ramp SECONDS] [--max-seconds S] [--expect TOKENS] [--sessions S] [--prefix TEXT]
 *
 * The body FILE is a template: {{id}} becomes a unique request id, {{session}} one of S session names (the number of the
 * request modulo S; without --sessions every request is its own session).
 *
 * Tokens are the marks " @dddddddddd" that fake_llm puts into its text; the digits give a token's delay. They are counted
 * in events only that carry text as it comes, so that final snapshots do not count twice:
 *   --match TEXT     the body is SSE (an event ends with a blank line); events that contain TEXT count
 *   --arm NUMBER     the body is frames of protobuf with a 4-byte length; frames that begin with this byte count
 *
 * One thread, epoll; connections are kept alive and used again. The result is one JSON object on stdout.
 */
#include "buffer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_BUCKETS 36000 /* of 100 ms: an hour */
#define FRAME_HEAD 4

typedef enum { IDLE, HEAD, BODY } State;
typedef enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER } ChunkState;

typedef struct {
    int fd, reused, status, chunked, close_after, tokens, at_line_start;
    State state;
    ChunkState chunk_state;
    Buffer out, in, event;
    size_t sent;
    long long left; /* of the body or of the chunk; -1: until the connection closes */
    int64_t started_us;
} Connection;

typedef struct {
    uint32_t *values; /* microseconds */
    size_t length, capacity;
} Samples;

static struct {
    int port, concurrency, arm, expect, sessions;
    long requests;
    double ramp, max_seconds;
    const char *path, *accept, *header, *match, *prefix;
    Buffer body;
} options = {.concurrency = 1, .arm = -1, .expect = -1, .requests = 1, .max_seconds = 120, .path = "/",
             .accept = "text/event-stream", .header = "x-load: 1", .match = "", .prefix = "r"};

static struct {
    long started, finished, ok, failed, short_streams;
    unsigned long long events, tokens;
    Samples first_token, completion, delay;
    uint32_t tokens_per_100ms[MAX_BUCKETS];
    int64_t started_us;
    char first_error[400];
} result;

static int poller;

/* ---- figures ---- */

static void push(Samples *s, int64_t us) {
    if (s->length == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 4096;
        s->values = resized(s->values, s->capacity * sizeof *s->values);
    }
    s->values[s->length++] = us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : us;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, Samples *s) {
    double ms[3] = {-1, -1, -1}, quantiles[] = {.5, .99, 1};
    qsort(s->values, s->length, sizeof *s->values, by_size);
    for (int i = 0; i < 3 && s->length; i++) ms[i] = s->values[(size_t)(quantiles[i] * (s->length - 1) + .5)] / 1000.0;
    printf("\"%s\":{\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f},", name, ms[0], ms[1], ms[2]);
}

static void fail(const char *why, const char *detail, size_t length) {
    result.failed++;
    if (result.first_error[0]) return;
    snprintf(result.first_error, sizeof result.first_error, "%s %.*s", why, (int)(length > 300 ? 300 : length), detail);
    for (char *p = result.first_error; *p; p++)
        if (*p == '"' || *p == '\\' || *p < ' ') *p = ' '; /* it is printed within JSON; bytes above ASCII are negative */
}

/* ---- the body of an answer ---- */

static void on_token(Connection *c, int64_t sent_us) {
    int64_t now = now_us(), bucket = (now - result.started_us) / 100000;
    if (!c->tokens++) push(&result.first_token, now - c->started_us);
    push(&result.delay, now % TOKEN_MODULUS - sent_us);
    result.tokens++;
    if (bucket < MAX_BUCKETS) result.tokens_per_100ms[bucket]++;
}

static void on_event(Connection *c) {
    Buffer *e = &c->event;
    size_t match = strlen(options.match);
    result.events++;
    int counts = options.arm >= 0 ? (unsigned char)e->bytes[0] == options.arm
                                  : !match || memmem(e->bytes, e->length, options.match, match);
    char *p = e->bytes, *end = p + e->length;
    while (counts && (p = memmem(p, end - p, TOKEN_MARK, 2)) && end - p >= 2 + TOKEN_DIGITS) {
        int64_t time = 0;
        int i = 2;
        for (; i < 2 + TOKEN_DIGITS && p[i] >= '0' && p[i] <= '9'; i++) time = time * 10 + p[i] - '0';
        if (i == 2 + TOKEN_DIGITS) on_token(c, time);
        p += i;
    }
    e->length = 0;
}

/* SSE: a line at a time; a blank line ends an event. */
static void on_lines(Connection *c, const char *bytes, const char *end) {
    while (bytes < end) {
        const char *newline = memchr(bytes, '\n', end - bytes), *line_end = newline ? newline : end;
        if (line_end > bytes && !(line_end == bytes + 1 && *bytes == '\r')) {
            put(&c->event, bytes, line_end - bytes);
            c->at_line_start = 0;
        }
        if (!newline) return;
        if (c->at_line_start && c->event.length) on_event(c);
        c->at_line_start = 1;
        bytes = newline + 1;
    }
}

/* Protobuf: four bytes say how long the frame is that follows. */
static void on_frames(Connection *c, const char *bytes, const char *end) {
    put(&c->event, bytes, end - bytes);
    Buffer rest = c->event;
    size_t done = 0;
    while (rest.length - done >= FRAME_HEAD) {
        const unsigned char *h = (unsigned char *)rest.bytes + done;
        size_t length = (size_t)h[0] << 24 | h[1] << 16 | h[2] << 8 | h[3];
        if (rest.length - done - FRAME_HEAD < length) break;
        c->event = (Buffer){rest.bytes + done + FRAME_HEAD, length, 0};
        if (length) on_event(c);
        done += FRAME_HEAD + length;
    }
    c->event = rest;
    take(&c->event, done);
}

static void on_body(Connection *c, const char *bytes, size_t length) {
    if (c->status != 200) put(&c->event, bytes, length); /* the text of the error */
    else if (options.arm >= 0) on_frames(c, bytes, bytes + length);
    else on_lines(c, bytes, bytes + length);
}

/* ---- requests ---- */

static void fill(Buffer *out, const char *template, size_t length, long id) {
    const char *p = template, *end = template + length, *mark;
    char text[200];
    while ((mark = memmem(p, end - p, "{{", 2))) {
        put(out, p, mark - p);
        int session = !strncmp(mark, "{{session}}", 11);
        long number = session && options.sessions ? id % options.sessions : id;
        put(out, text, snprintf(text, sizeof text, "%s-%s%ld", options.prefix, session ? "s" : "", number));
        p = mark + (session ? 11 : 6);
    }
    put(out, p, end - p);
}

static void hang_up(Connection *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->reused = 0;
}

static void dial(Connection *c) {
    int one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    c->sent = 0;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connect(c->fd, (void *)&a, sizeof a); /* what comes of it is told by the first send */
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
}

static void send_some(Connection *c) {
    while (c->sent < c->out.length) {
        ssize_t n = send(c->fd, c->out.bytes + c->sent, c->out.length - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return; /* not yet, or closed: then the read that follows says so */
        c->sent += n;
    }
}

static void begin(Connection *c) {
    if (result.started >= options.requests) return;
    long id = result.started++;
    char head[600];
    Buffer body = {0};
    fill(&body, options.body.bytes, options.body.length, id);
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\naccept: %s\r\n"
                     "%s\r\ncontent-length: %zu\r\n\r\n",
                     options.path, options.port, options.accept, options.header, body.length);
    c->out.length = c->in.length = c->event.length = c->sent = 0;
    put(&c->out, head, n);
    put(&c->out, body.bytes, body.length);
    free(body.bytes);
    c->state = HEAD;
    c->tokens = c->at_line_start = 0;
    c->started_us = now_us();
    if (c->fd < 0) dial(c);
    else send_some(c);
}

static void finish(Connection *c, const char *error) {
    char why[64];
    result.finished++;
    if (error) {
        fail(error, "", 0);
    } else if (c->status != 200) {
        snprintf(why, sizeof why, "status %d:", c->status);
        fail(why, c->event.bytes ? c->event.bytes : "", c->event.length);
    } else {
        result.ok++;
        push(&result.completion, now_us() - c->started_us);
        if (options.expect >= 0 && c->tokens != options.expect) result.short_streams++;
    }
    c->state = IDLE;
    if (error || c->close_after) hang_up(c);
    else c->reused = 1;
    begin(c);
}

/* ---- answers ---- */

static int parse_head(Connection *c) {
    char *end = memmem(c->in.bytes, c->in.length, "\r\n\r\n", 4);
    if (!end) return 0;
    c->status = atoi(c->in.bytes + 9);
    c->chunked = c->close_after = 0;
    c->chunk_state = CHUNK_SIZE;
    c->left = -1;
    for (char *line = c->in.bytes; line < end; line = (char *)memmem(line, end + 2 - line, "\r\n", 2) + 2) {
        if (!strncasecmp(line, "content-length:", 15)) c->left = atoll(line + 15);
        if (!strncasecmp(line, "transfer-encoding:", 18)) c->chunked = 1;
        if (!strncasecmp(line, "connection: close", 17)) c->close_after = 1;
    }
    take(&c->in, end + 4 - c->in.bytes);
    c->state = BODY;
    return 1;
}

/* Passes on up to `left` bytes; how many. */
static size_t pass(Connection *c, const char *bytes, size_t length) {
    if (c->left >= 0 && (long long)length > c->left) length = c->left;
    on_body(c, bytes, length);
    if (c->left >= 0) c->left -= length;
    return length;
}

/* Takes what is there of a chunked body; 1 when it is complete. */
static int parse_chunks(Connection *c) {
    char *p = c->in.bytes, *end = p + c->in.length;
    int done = 0;
    while (p < end && !done) {
        if (c->chunk_state == CHUNK_DATA) {
            p += pass(c, p, end - p);
            if (!c->left) c->chunk_state = CHUNK_END;
            continue;
        }
        char *newline = memchr(p, '\n', end - p);
        if (!newline) break;
        if (c->chunk_state == CHUNK_SIZE) {
            c->left = strtoll(p, NULL, 16);
            c->chunk_state = c->left ? CHUNK_DATA : TRAILER;
        } else if (c->chunk_state == CHUNK_END) {
            c->chunk_state = CHUNK_SIZE;
        } else {
            done = newline - p <= 1; /* the blank line after the last trailer */
        }
        p = newline + 1;
    }
    take(&c->in, p - c->in.bytes);
    return done;
}

static int parse_body(Connection *c) {
    if (c->chunked) return parse_chunks(c);
    take(&c->in, pass(c, c->in.bytes, c->in.length));
    return c->left == 0;
}

static void on_closed(Connection *c) {
    if (c->state == IDLE) {
        hang_up(c);
    } else if (c->state == BODY && !c->chunked && c->left < 0) {
        c->close_after = 1;
        finish(c, NULL);
    } else if (c->state == HEAD && c->reused) { /* the server closed a kept connection just before we used it */
        hang_up(c);
        dial(c);
    } else {
        finish(c, "the server closed the connection early");
    }
}

static void on_io(Connection *c, uint32_t events) {
    static char bytes[262144];
    if (c->state != IDLE && events & EPOLLOUT) send_some(c);
    if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
    for (int fd = c->fd; c->fd == fd;) { /* edge-triggered: until there is no more, or another connection took its place */
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) return on_closed(c);
        if (c->state == IDLE) continue;
        put(&c->in, bytes, n);
        if (c->state == HEAD && !parse_head(c)) continue;
        if (parse_body(c)) finish(c, NULL);
    }
}

/* ---- the command ---- */

static void read_file(Buffer *b, const char *name) {
    FILE *file = fopen(name, "r");
    char bytes[65536];
    if (!file) exit((perror(name), 2));
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) put(b, bytes, n);
    fclose(file);
}

static int read_option(const char *name, const char *value) {
    if (!strcmp(name, "--port")) options.port = atoi(value);
    else if (!strcmp(name, "--path")) options.path = value;
    else if (!strcmp(name, "--body")) read_file(&options.body, value);
    else if (!strcmp(name, "--accept")) options.accept = value;
    else if (!strcmp(name, "--header")) options.header = value;
    else if (!strcmp(name, "--match")) options.match = value;
    else if (!strcmp(name, "--arm")) options.arm = atoi(value);
    else if (!strcmp(name, "-c")) options.concurrency = atoi(value);
    else if (!strcmp(name, "-n")) options.requests = atol(value);
    else if (!strcmp(name, "--ramp")) options.ramp = atof(value);
    else if (!strcmp(name, "--max-seconds")) options.max_seconds = atof(value);
    else if (!strcmp(name, "--expect")) options.expect = atoi(value);
    else if (!strcmp(name, "--sessions")) options.sessions = atoi(value);
    else if (!strcmp(name, "--prefix")) options.prefix = value;
    else return 0;
    return 1;
}

static void run(Connection *connections) {
    struct epoll_event events[512];
    int opened = 0;
    while (result.finished < options.requests) {
        double seconds = (now_us() - result.started_us) / 1e6;
        if (seconds > options.max_seconds) return;
        while (opened < options.concurrency && seconds >= options.ramp * opened / options.concurrency)
            begin(&connections[opened++]);
        int n = epoll_wait(poller, events, 512, opened < options.concurrency ? 1 : 100);
        for (int i = 0; i < n; i++) on_io(events[i].data.ptr, events[i].events);
    }
}

static void print_result(void) {
    int64_t ended_us = now_us(), last = (ended_us - result.started_us) / 100000;
    printf("{\"ok\":%ld,\"failed\":%ld,\"unfinished\":%ld,\"short_streams\":%ld,\"wall_s\":%.4f,"
           "\"events\":%llu,\"tokens\":%llu,",
           result.ok, result.failed, options.requests - result.finished, result.short_streams,
           (ended_us - result.started_us) / 1e6, result.events, result.tokens);
    print_samples("first_token_ms", &result.first_token);
    print_samples("completion_ms", &result.completion);
    print_samples("token_delay_ms", &result.delay);
    printf("\"started_us\":%lld,\"first_error\":\"%s\",\"tokens_per_100ms\":[", (long long)result.started_us, result.first_error);
    for (int64_t i = 0; i <= last && i < MAX_BUCKETS; i++) printf("%s%u", i ? "," : "", result.tokens_per_100ms[i]);
    printf("]}\n");
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < count; i += 2) {
        if (i + 1 < count && read_option(arguments[i], arguments[i + 1])) continue;
        fprintf(stderr, "load: what is %s?\n", arguments[i]);
        return 2;
    }
    poller = epoll_create1(0);
    Connection *connections = calloc(options.concurrency, sizeof *connections);
    for (int i = 0; i < options.concurrency; i++) connections[i].fd = -1;
    result.started_us = now_us();
    run(connections);
    print_result();
    return 0;
}
