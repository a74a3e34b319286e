/* fake_llm: an OpenAI-compatible chat-completions endpoint that costs next to nothing.
 *
 *   fake_llm            listens on a free loopback port and prints it
 *
 * One thread, epoll, no allocation per token, so that one core of it outruns any server under test. What it answers is
 * chosen by the last directive [[fake-...]] in the messages, else by the name of the model:
 *
 *   fake-200             200 content chunks back to back (one HTTP chunk per SSE event, one send for all)
 *   fake-200-50tps       200 content chunks at 50 per second (one send per token)
 *   fake-tool-200        first a tool call get_weather({"city": "Paris"}) with streamed arguments; 200 content chunks
 *                        once the last message of the request has the role "tool"
 *
 * Every content chunk is the 12 bytes " @dddddddddd": CLOCK_MONOTONIC in microseconds modulo 1e10 at the time of
 * sending. A client on the same machine so knows the one-way delay of each token, and can count them on any wire.
 * A request that does not say "stream": true gets the tokens in one piece, at once, and never a tool call.
 * GET answers a list of models. Not supported, on purpose: chunked request bodies.
 */
#include "buffer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FD 20000
#define NAME 96

/* One connection. `generation` tells a timer whether the connection it was set for is still the same. */
typedef struct {
    int fd, used, generation, wants_write, streaming;
    Buffer in, out;
    size_t sent; /* of out */
    char model[NAME];
    int tokens, tokens_sent;
    double tokens_per_second;
    int64_t started_us, next_us;
} Connection;

typedef struct {
    int64_t due_us;
    int fd, generation;
} Timer;

static Connection *connections[MAX_FD];
static Timer *heap; /* the earliest timer first */
static int heap_length, heap_capacity;
static int poller;
static unsigned long long requests;

/* ---- timers ---- */

static void swap_timers(int i, int j) {
    Timer t = heap[i];
    heap[i] = heap[j], heap[j] = t;
}

static void push_timer(Connection *c) {
    if (heap_length == heap_capacity) {
        heap_capacity = heap_capacity ? heap_capacity * 2 : 1024;
        heap = resized(heap, heap_capacity * sizeof *heap);
    }
    int i = heap_length++;
    heap[i] = (Timer){c->next_us, c->fd, c->generation};
    for (; i && heap[(i - 1) / 2].due_us > heap[i].due_us; i = (i - 1) / 2) swap_timers(i, (i - 1) / 2);
}

static Timer pop_timer(void) {
    Timer first = heap[0];
    heap[0] = heap[--heap_length];
    for (int i = 0;;) {
        int left = 2 * i + 1, least = i;
        if (left < heap_length && heap[left].due_us < heap[least].due_us) least = left;
        if (left + 1 < heap_length && heap[left + 1].due_us < heap[least].due_us) least = left + 1;
        if (least == i) return first;
        swap_timers(i, least);
        i = least;
    }
}

/* ---- connections ---- */

static void hang_up(Connection *c) {
    if (!c->used) return;
    close(c->fd);
    c->used = c->streaming = c->wants_write = 0;
    c->generation++;
    c->in.length = c->out.length = c->sent = 0;
}

static void watch(Connection *c, int wants_write) {
    if (c->wants_write == wants_write) return;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (wants_write ? EPOLLOUT : 0), .data.fd = c->fd};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_write = wants_write;
}

/* Sends what the socket takes; the rest goes when it is writable again. 0, or -1 if the peer is gone. */
static int flush_out(Connection *c) {
    Buffer *out = &c->out;
    while (c->sent < out->length) {
        ssize_t n = send(c->fd, out->bytes + c->sent, out->length - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            watch(c, 1);
            return 0;
        }
        if (n < 0) return hang_up(c), -1;
        c->sent += n;
    }
    out->length = c->sent = 0;
    watch(c, 0);
    return 0;
}

/* ---- pieces of an answer ---- */

static void put_chunk(Buffer *b, const char *bytes, size_t length) {
    char size[20];
    put(b, size, sprintf(size, "%zx\r\n", length));
    put(b, bytes, length);
    put(b, "\r\n", 2);
}

static void put_event(Buffer *b, const char *model, const char *format, ...) {
    char members[1024], line[1600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(members, sizeof members, format, arguments);
    va_end(arguments);
    int n = snprintf(line, sizeof line,
                     "data: {\"id\":\"chatcmpl-fake00000000000000000000000000\",\"object\":\"chat.completion.chunk\","
                     "\"created\":1760000000,\"model\":\"%s\",\"service_tier\":\"default\","
                     "\"system_fingerprint\":\"fp_fake000000\",%s}\n\n",
                     model, members);
    put_chunk(b, line, n);
}

#define CHOICE(delta, reason) "\"choices\":[{\"index\":0,\"delta\":" delta ",\"logprobs\":null,\"finish_reason\":" reason "}]"

/* The encoded content chunk of one model name; only its ten digits change from token to token. */
typedef struct {
    char model[NAME], bytes[600];
    size_t length, digits_at;
} Template;

static Template *template_of(const char *model) {
    static Template known[64];
    static int count;
    for (int i = 0; i < count; i++)
        if (!strcmp(known[i].model, model)) return &known[i];
    Template *t = &known[count < 63 ? count++ : 63];
    Buffer b = {0};
    put_event(&b, model, CHOICE("{\"content\":\" @%010d\"}", "null"), 0);
    snprintf(t->model, NAME, "%s", model);
    memcpy(t->bytes, b.bytes, b.length);
    t->length = b.length;
    t->digits_at = (char *)memmem(b.bytes, b.length, " @0", 3) - b.bytes + 2;
    free(b.bytes);
    return t;
}

static void put_token(Buffer *b, const Template *t, int64_t time_us) {
    reserve(b, t->length);
    char *digits = b->bytes + b->length + t->digits_at;
    memcpy(b->bytes + b->length, t->bytes, t->length);
    b->length += t->length;
    for (int i = TOKEN_DIGITS - 1; i >= 0; i--, time_us /= 10) digits[i] = '0' + time_us % 10;
}

static void put_head(Connection *c) {
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                               "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    put(&c->out, head, sizeof head - 1);
    put_event(&c->out, c->model, CHOICE("{\"role\":\"assistant\",\"content\":\"\"}", "null"));
}

static void put_end(Connection *c, const char *reason, int tokens) {
    put_event(&c->out, c->model, CHOICE("{}", "\"%s\"") ",\"usage\":null", reason);
    put_event(&c->out, c->model,
              "\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d,"
              "\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0},"
              "\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0}}",
              tokens, tokens + 10);
    put_chunk(&c->out, "data: [DONE]\n\n", 14);
    put(&c->out, "0\r\n\r\n", 5);
}

static void put_tool_call(Connection *c) {
    static const char *pieces[] = {"{\\\"ci", "ty\\\": ", "\\\"Par", "is\\\"}"};
    put_event(&c->out, c->model,
              CHOICE("{\"tool_calls\":[{\"index\":0,\"id\":\"call_%llu\",\"type\":\"function\","
                     "\"function\":{\"name\":\"get_weather\",\"arguments\":\"\"}}]}", "null"),
              requests);
    for (int i = 0; i < 4; i++)
        put_event(&c->out, c->model,
                  CHOICE("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"%s\"}}]}", "null"), pieces[i]);
}

static void put_plain(Connection *c, const char *status, const char *body) {
    char head[200];
    put(&c->out, head, sprintf(head, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
                               status, strlen(body)));
    put(&c->out, body, strlen(body));
}

/* The whole answer as one JSON object. */
static void put_completion(Connection *c) {
    Buffer b = {0};
    char piece[600];
    int64_t us = now_us();
    put(&b, piece, sprintf(piece, "{\"id\":\"chatcmpl-fake00000000000000000000000000\",\"object\":\"chat.completion\","
                                  "\"created\":1760000000,\"model\":\"%s\",\"choices\":[{\"index\":0,\"message\":"
                                  "{\"role\":\"assistant\",\"content\":\"", c->model));
    for (int i = 0; i < c->tokens; i++)
        put(&b, piece, sprintf(piece, " @%010lld", (long long)((us + i) % 10000000000LL)));
    put(&b, piece, sprintf(piece, "\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":"
                                  "{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d}}",
                           c->tokens, c->tokens + 10));
    put(&b, "", 1); /* the zero that put_plain looks for */
    put_plain(c, "200 OK", b.bytes);
    free(b.bytes);
}

/* ---- a request ---- */

static const char *last_of(const char *from, const char *end, const char *text) {
    const char *found = NULL;
    size_t n = strlen(text);
    for (const char *p = from; (p = memmem(p, end - p, text, n)); p += n) found = p;
    return found;
}

/* The first character of the value of the last member `key` (with its quotes). Good enough for JSON that we send. */
static const char *value_of(const char *body, const char *end, const char *key) {
    const char *p = last_of(body, end, key);
    if (!p) return "  ";
    for (p += strlen(key); p < end && strchr(" \t\n:", *p); p++) {}
    return p;
}

/* Keeps the name of the mode in c->model: the last directive, else the model that was asked for. */
static void read_mode(Connection *c, const char *body, const char *end) {
    const char *directive = last_of(body, end, "[[fake-"), *from, *to = NULL;
    if (directive) {
        from = directive + 2;
        to = memmem(from, end - from, "]]", 2);
    } else {
        from = value_of(body, end, "\"model\"") + 1;
        if (from[-1] == '"') to = memchr(from, '"', end - from);
    }
    snprintf(c->model, NAME, "%.*s", to && to - from < NAME ? (int)(to - from) : 0, from);
}

static void answer(Connection *c, const char *body, size_t length) {
    const char *end = body + length;
    requests++;
    read_mode(c, body, end);
    const char *mode = strncmp(c->model, "fake-", 5) ? "1" : c->model + 5;
    int tool = !strncmp(mode, "tool-", 5);
    if (tool) mode += 5;
    const char *pace = strchr(mode, '-');
    c->tokens = atoi(mode);
    c->tokens_per_second = pace ? atof(pace + 1) : 0;
    if (*value_of(body, end, "\"stream\"") != 't') {
        put_completion(c);
        flush_out(c);
        return;
    }
    put_head(c);
    if (tool && strncmp(value_of(body, end, "\"role\""), "\"tool\"", 6)) {
        put_tool_call(c);
        put_end(c, "tool_calls", 12);
    } else if (c->tokens_per_second <= 0) {
        const Template *t = template_of(c->model);
        int64_t us = now_us();
        for (int i = 0; i < c->tokens; i++) put_token(&c->out, t, us + i); /* no two alike: some clients drop repeats */
        put_end(c, "stop", c->tokens);
    } else {
        c->streaming = 1;
        c->tokens_sent = 0;
        c->started_us = c->next_us = now_us();
        push_timer(c);
    }
    flush_out(c);
}

static void tick(Connection *c) {
    put_token(&c->out, template_of(c->model), now_us());
    if (++c->tokens_sent >= c->tokens) {
        put_end(c, "stop", c->tokens);
        c->streaming = 0;
    }
    c->next_us = c->started_us + (int64_t)(c->tokens_sent * 1e6 / c->tokens_per_second);
    if (flush_out(c) == 0 && c->streaming) push_timer(c);
}

/* Answers the request at the front of c->in if it is there whole; its length, or 0. */
static size_t take_request(Connection *c) {
    char *bytes = c->in.bytes, *head_end = memmem(bytes, c->in.length, "\r\n\r\n", 4);
    if (!head_end) return 0;
    size_t head = head_end - bytes + 4, body = 0;
    for (char *line = bytes; line < head_end; line = (char *)memmem(line, head_end + 2 - line, "\r\n", 2) + 2) {
        if (!strncasecmp(line, "content-length:", 15)) body = strtoul(line + 15, NULL, 10);
        if (!strncasecmp(line, "transfer-encoding:", 18)) {
            put_plain(c, "411 Length Required", "{}");
            flush_out(c);
            hang_up(c);
            return 0;
        }
    }
    if (c->in.length < head + body) return 0;
    if (strncmp(bytes, "GET", 3)) {
        answer(c, bytes + head, body);
    } else {
        put_plain(c, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":\"model\",\"created\":1,\"owned_by\":\"fake\"}]}");
        flush_out(c);
    }
    return head + body;
}

static void on_input(Connection *c) {
    reserve(&c->in, 65536);
    ssize_t n = recv(c->fd, c->in.bytes + c->in.length, 65536, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) hang_up(c);
        return;
    }
    c->in.length += n;
    size_t taken;
    while (!c->streaming && c->in.length && (taken = take_request(c)) && c->used) take(&c->in, taken);
}

static void on_connections(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MAX_FD) abort(); /* a benchmark of that size needs a larger table */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!connections[fd]) connections[fd] = calloc(1, sizeof(Connection));
        connections[fd]->fd = fd;
        connections[fd]->used = 1;
        struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static void on_socket(Connection *c, uint32_t events) {
    if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) hang_up(c);
    if (c->used && events & EPOLLOUT) flush_out(c);
    if (c->used && events & EPOLLIN) on_input(c);
}

/* Waits with the precision of the next timer: epoll_wait's milliseconds would be a twentieth of a token's time. */
static int wait_for(struct epoll_event *events, int most) {
    if (!heap_length) return epoll_wait(poller, events, most, -1);
    int64_t us = heap[0].due_us - now_us();
    if (us < 0) us = 0;
    struct timespec timeout = {us / 1000000, us % 1000000 * 1000};
    return epoll_pwait2(poller, events, most, &timeout, NULL);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (void *)&address, size) || listen(listener, 4096)) {
        perror("fake_llm");
        return 1;
    }
    getsockname(listener, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    poller = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, events[512];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = wait_for(events, 512);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener) on_connections(listener);
            else on_socket(connections[events[i].data.fd], events[i].events);
        }
        for (int64_t now = now_us(); heap_length && heap[0].due_us <= now;) {
            Timer t = pop_timer();
            Connection *c = connections[t.fd];
            if (c->used && c->streaming && c->generation == t.generation) tick(c);
        }
    }
}
