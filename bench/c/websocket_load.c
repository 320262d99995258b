/* WebSocket load: many sockets on one epoll, frames made beforehand, every answer compared. See bench/load/websocket.py.

   websocket_load PORT SOCKETS SECONDS IN_FLIGHT PATTERN STEM ACCEPT DEFLATE

   STEM.head is the handshake, STEM.frame one masked frame, STEM.wanted the payload to come back, ACCEPT the key to be
   answered. PATTERN: echo (IN_FLIGHT messages of each socket are under way), broadcast (one message, delivered to all),
   open (a handshake and a close, again and again). With DEFLATE answers may be compressed: the first ones of the first
   socket are printed, for somebody with zlib to read.

   When all sockets are open, and again when the burst is over, "bench: mark" is printed and a line (or the end) of the
   standard input waited for: whoever measures the server leaves out what came before and comes after. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CLOSE = 8, PING = 9, PONG = 10 };
enum { READ = 262144, HEAD = 8192, SAMPLE = 65536, BATCH = 65536, EVENTS = 1024, CONTROL = 125 };
enum { EXACT = 2048, HALF = EXACT / 2, TIMES = EXACT + 24 * HALF };
static const uint64_t SECOND = 1000000, HANDSHAKE = 10 * 1000000, DRAIN = 5 * 1000000;
/* A close frame with 1000, and a mask that changes nothing. */
static const unsigned char BYE[] = {0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8};

typedef enum { HANDSHAKING, OPEN, CLOSING, GONE } State;
typedef struct {
    int fd, writing;             /* writing: epoll tells when more can be sent */
    State state;
    size_t owed, at;             /* bytes of frames to be sent, and where in a frame the next one is */
    uint64_t *since;             /* when those under way were sent: a ring of as many as may be */
    unsigned first, flying;
    char *head;                  /* of the handshake, until it is complete */
    size_t head_length;
    unsigned char header[10];    /* of the frame that is being read */
    unsigned header_length;
    int message, compressed;     /* opcode of the message that is being read, 0 for none */
    uint64_t left, got;          /* of this frame, to come; of this message, there */
    unsigned char control[CONTROL];
    unsigned control_length;
} Socket;

typedef struct { char *bytes; size_t length; } File;

static int port, poller, deflate;
static unsigned sockets, in_flight;
static enum { ECHO, BROADCAST, REOPEN } pattern;
static const char *accepted;
static File head, frame, wanted;
static char *batch, in[READ];
static size_t batch_length;
static Socket *all;
static uint64_t now, end, messages, received, pending;
static uint64_t times[TIMES];
static char sample[SAMPLE];
static size_t sample_length, sampled;
static int sampling = 1;
static uint64_t unconnected, unread, unwritten, closed, lengths, contents, frames, heads, unanswered;

static void fail(const char *what) { printf("%s\n", what); exit(1); }

static uint64_t clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + t.tv_nsec / 1000;
}

static File loaded(const char *stem, const char *suffix) {
    char path[4096];
    File file = {NULL, 0};
    snprintf(path, sizeof path, "%s.%s", stem, suffix);
    FILE *source = fopen(path, "rb");
    if (!source || fseek(source, 0, SEEK_END)) fail("its files cannot be read");
    file.length = ftell(source);
    rewind(source);
    file.bytes = malloc(file.length + 1);
    if (fread(file.bytes, 1, file.length, source) != file.length) fail("its files cannot be read");
    file.bytes[file.length] = 0;
    fclose(source);
    return file;
}

/* Latencies in microseconds, to three digits and more: exact below EXACT, then 1,024 steps to each power of two. */
static void timed(uint64_t value) {
    unsigned shift = 0;
    while (value >> shift >= EXACT) shift++;
    size_t place = shift ? EXACT + (size_t)(shift - 1) * HALF + ((value >> shift) - HALF) : value;
    times[place < TIMES ? place : TIMES - 1]++;
}

static uint64_t time_at(size_t place) {
    if (place < EXACT) return place;
    unsigned shift = (place - EXACT) / HALF + 1;
    return (((place - EXACT) % HALF + HALF + 1) << shift) - 1;
}

static void watch(Socket *one, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (one->writing ? EPOLLOUT : 0), .data.ptr = one};
    epoll_ctl(poller, operation, one->fd, &event);
}

static void lost(Socket *one, uint64_t *kind) {
    if (one->state == GONE) return;
    unsigned under_way = pattern == ECHO ? one->flying : pattern == BROADCAST ? pending > 0 : 1;
    *kind += under_way ? under_way : 1;
    pending -= under_way < pending ? under_way : pending;
    one->state = GONE;
    close(one->fd);
}

static void flush(Socket *one) {
    while (one->owed) {
        size_t length = batch_length - one->at;
        ssize_t sent = send(one->fd, batch + one->at, length < one->owed ? length : one->owed, MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) { lost(one, &unwritten); return; }
        if (sent < 0) break;
        one->owed -= sent;
        one->at = (one->at + sent) % frame.length;
    }
    if (one->writing != (one->owed > 0)) { one->writing = one->owed > 0; watch(one, EPOLL_CTL_MOD); }
}

static void send_messages(Socket *one, unsigned count) {
    for (unsigned i = 0; i < count; i++) one->since[(one->first + one->flying++) % in_flight] = now;
    pending += pattern == BROADCAST ? sockets : count;
    one->owed += count * frame.length;
    flush(one);
}

/* What is small goes whole, or its socket is of no use any more. */
static void send_small(Socket *one, const void *bytes, size_t length) {
    if (send(one->fd, bytes, length, MSG_DONTWAIT) != (ssize_t)length) lost(one, &unwritten);
}

static void answered(Socket *one) {
    Socket *sender = pattern == BROADCAST ? all : one;
    if (!pending || !sender->flying) { frames++; return; }
    if (one->got != wanted.length && !one->compressed) { lengths++; }
    timed(now - sender->since[sender->first]);
    messages++;
    pending--;
    if (pattern == ECHO || !pending) { sender->first = (sender->first + 1) % in_flight; sender->flying--; }
    if (one->compressed && one == all && sampling) sampled = sample_length;
}

/* Keeps what the first socket gets compressed, while it fits; the four bytes that senders leave out are added. */
static void keep(const char *bytes, size_t length) {
    if (sample_length + length > SAMPLE) { sampling = 0; return; }
    memcpy(sample + sample_length, bytes, length);
    sample_length += length;
}

static int payload(Socket *one, const char *bytes, size_t length) {
    if (one->header[0] & 8) {
        memcpy(one->control + one->control_length, bytes, length);
        one->control_length += length;
    } else if (one->compressed) {
        if (one == all && sampling) keep(bytes, length);
        one->got += length;
    } else {
        if (one->got + length > wanted.length || memcmp(wanted.bytes + one->got, bytes, length)) {
            if (one->got + length > wanted.length) lengths++; else contents++;
            return 0;
        }
        one->got += length;
    }
    return 1;
}

/* A header is complete: its length, or 0 where no server may send such a one. */
static int begun(Socket *one) {
    unsigned char *header = one->header, opcode = header[0] & 15, reserved = header[0] & 0x70;
    int control = opcode & 8;
    one->left = header[1];
    if (header[1] >= 126) {
        one->left = 0;
        for (int i = 2; i < (header[1] == 126 ? 4 : 10); i++) one->left = one->left << 8 | header[i];
    }
    if (control) {
        one->control_length = 0;
        return !reserved && header[0] & 0x80 && one->left <= CONTROL && opcode <= PONG;
    }
    if (!opcode) return one->message && !reserved;
    one->compressed = reserved == 0x40;
    if (one->message || (reserved && !(deflate && one->compressed))) return 0;
    one->message = opcode;
    one->got = 0;
    return opcode == (frame.bytes[0] & 15);
}

static void ended(Socket *one, unsigned *complete) {
    int opcode = one->header[0] & 15;
    one->header_length = 0;
    if (opcode == PING) {
        unsigned char pong[6 + CONTROL] = {0x80 | PONG, 0x80 | one->control_length};
        memcpy(pong + 6, one->control, one->control_length);
        send_small(one, pong, 6 + one->control_length);
    } else if (opcode == CLOSE && pattern == REOPEN) {
        one->state = CLOSING;
    } else if (opcode == CLOSE) {
        lost(one, &closed);
    } else if (opcode != PONG && one->header[0] & 0x80) {
        if (one->compressed && one == all && sampling) keep("\0\0\xff\xff", 4);
        answered(one);
        one->message = 0;
        ++*complete;
    }
}

/* Reads frames in any cut; returns how many messages are complete, and closes a socket whose answers are wrong. */
static unsigned take(Socket *one, const char *bytes, size_t length) {
    unsigned complete = 0;
    size_t at = 0;
    while (at < length && one->state == OPEN) {
        unsigned size = one->header_length < 2 ? 2 : one->header[1] < 126 ? 2 : one->header[1] == 126 ? 4 : 10;
        if (one->header_length < size) {
            one->header[one->header_length++] = bytes[at++];
            if (one->header_length == 2 && one->header[1] & 0x80) { lost(one, &frames); break; }
            size = one->header_length < 2 ? 2 : one->header[1] < 126 ? 2 : one->header[1] == 126 ? 4 : 10;
            if (one->header_length < size) continue;
            if (!begun(one)) { lost(one, &frames); break; }
        }
        size_t part = one->left < length - at ? one->left : length - at;
        if (!payload(one, bytes + at, part)) { uint64_t ignored = 0; lost(one, &ignored); break; }
        at += part;
        one->left -= part;
        if (!one->left) ended(one, &complete);
    }
    return complete;
}

/* Reads the answer to a handshake; returns how many of the bytes belong to it. */
static size_t opened(Socket *one, const char *bytes, size_t length) {
    size_t before = one->head_length, part = length < HEAD - 1 - before ? length : HEAD - 1 - before;
    memcpy(one->head + before, bytes, part);
    one->head_length += part;
    one->head[one->head_length] = 0;
    char *found = strstr(one->head, "\r\n\r\n");
    if (!found) { if (one->head_length == HEAD - 1) lost(one, &heads); return length; }
    found[2] = 0;
    if (strncmp(one->head, "HTTP/1.1 101", 12)) {
        one->head[strcspn(one->head, "\r\n")] = 0;
        printf("the handshake was refused: '%.60s'\n", one->head);
        exit(1);
    }
    if (!strstr(one->head, accepted)) fail("the handshake was answered with a wrong Sec-WebSocket-Accept");
    if ((strstr(one->head, "permessage-deflate") != NULL) != deflate) {
        fail(deflate ? "the server does not compress" : "the server compresses although nobody has asked it to");
    }
    one->state = OPEN;
    return found + 4 - one->head - before;
}

static void renew(Socket *one, int blocking) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1;
    uint64_t *since = one->since;
    char *space = one->head;
    memset(one, 0, sizeof *one);
    one->since = since;
    one->head = space;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    one->fd = socket(AF_INET, SOCK_STREAM | (blocking ? 0 : SOCK_NONBLOCK), 0);
    if (one->fd < 0) fail("no more sockets: raise the limit of open files");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    one->since[0] = now;
    if (connect(one->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) {
        if (blocking) fail("the server takes no connection");
        lost(one, &unconnected);
        return;
    }
    one->writing = !blocking;
}

/* A handshake at a time: nothing is measured yet. */
static void open_all(void) {
    struct timeval patience = {.tv_sec = HANDSHAKE / SECOND};
    for (Socket *one = all; one < all + sockets; one++) {
        renew(one, 1);
        setsockopt(one->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (write(one->fd, head.bytes, head.length) != (ssize_t)head.length) fail("the server closed in the handshake");
        while (one->state == HANDSHAKING) {
            ssize_t got = read(one->fd, in, HEAD);
            if (got <= 0) fail(got ? "a handshake was not answered" : "the server closed in the handshake");
            size_t at = opened(one, in, got);
            take(one, in + at, got - at);
        }
        if (one->state != OPEN) fail("the handshake was followed by what no server may send");
        watch(one, EPOLL_CTL_ADD);
    }
}

/* One step of a socket that opens and closes again and again. */
static void reopened(Socket *one, unsigned events) {
    if (one->writing && events & (EPOLLOUT | EPOLLERR)) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) { lost(one, &unconnected); return; }
        one->writing = 0;
        watch(one, EPOLL_CTL_MOD);
        send_small(one, head.bytes, head.length);
        return;
    }
    ssize_t got = read(one->fd, in, sizeof in);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        if (got || one->state != CLOSING) { lost(one, &unread); return; }
        timed(now - one->since[0]);
        messages++;
        pending--;
        one->state = GONE;
        close(one->fd);
        if (now >= end) return;
        pending++;
        renew(one, 0);
        if (one->state != GONE) watch(one, EPOLL_CTL_ADD);
        return;
    }
    received += got;
    size_t at = 0;
    if (one->state == HANDSHAKING) {
        at = opened(one, in, got);
        if (one->state != OPEN) return;
        send_small(one, BYE, sizeof BYE);
    }
    take(one, in + at, got - at);
}

static void serve(Socket *one, unsigned events) {
    if (one->state == GONE) return;
    if (pattern == REOPEN) { reopened(one, events); return; }
    if (events & EPOLLOUT) flush(one);
    if (!(events & ~EPOLLOUT) || one->state == GONE) return;
    ssize_t got = recv(one->fd, in, sizeof in, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { lost(one, &unread); return; }
    now = clock_us();
    received += got;
    unsigned complete = take(one, in, got);
    if (!complete || now >= end || one->state == GONE) return;
    if (pattern == ECHO) send_messages(one, complete);
    else if (!pending && all->state == OPEN) send_messages(all, 1);
}

static void mark(void) {
    char ignored;
    printf("bench: mark\n");
    fflush(stdout);
    while (read(0, &ignored, 1) == 1 && ignored != '\n') {}
}

static void report(uint64_t microseconds) {
    printf("bench: {\"requests\": %lu, \"seconds\": %.6f, \"received\": %lu, \"errors\": {\"connect\": %lu, \"read\": %lu, "
           "\"write\": %lu, \"closed\": %lu, \"length\": %lu, \"content\": %lu, \"protocol\": %lu, \"handshake\": %lu, "
           "\"unanswered\": %lu}, \"latencies\": [", messages, microseconds / 1e6, received, unconnected, unread,
           unwritten, closed, lengths, contents, frames, heads, unanswered);
    const char *between = "";
    for (size_t i = 0; i < TIMES; i++) {
        if (times[i]) { printf("%s[%lu, %lu]", between, time_at(i), times[i]); between = ", "; }
    }
    printf("], \"sample\": \"");
    for (size_t i = 0; i < sampled; i++) printf("%02x", (unsigned char)sample[i]);
    printf("\", \"wanted\": \"");
    for (size_t i = 0; sampled && i < wanted.length; i++) printf("%02x", (unsigned char)wanted.bytes[i]);
    printf("\"}\n");
}

int main(int argc, char **argv) {
    static struct epoll_event events[EVENTS];
    struct rlimit files;
    if (argc != 9) fail("usage: websocket_load PORT SOCKETS SECONDS IN_FLIGHT PATTERN STEM ACCEPT DEFLATE");
    port = atoi(argv[1]);
    sockets = atoi(argv[2]);
    in_flight = atoi(argv[4]);
    pattern = !strcmp(argv[5], "open") ? REOPEN : !strcmp(argv[5], "broadcast") ? BROADCAST : ECHO;
    head = loaded(argv[6], "head"), frame = loaded(argv[6], "frame"), wanted = loaded(argv[6], "wanted");
    accepted = argv[7];
    deflate = atoi(argv[8]);
    signal(SIGPIPE, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    unsigned repeated = BATCH / frame.length < 1 ? 1 : BATCH / frame.length;
    if (repeated > in_flight) repeated = in_flight;
    batch_length = repeated * frame.length;
    batch = malloc(batch_length);
    for (unsigned i = 0; i < repeated; i++) memcpy(batch + i * frame.length, frame.bytes, frame.length);
    all = calloc(sockets, sizeof *all);
    for (unsigned i = 0; i < sockets; i++) {
        all[i].since = calloc(in_flight, sizeof(uint64_t));
        all[i].head = malloc(HEAD);
    }
    poller = epoll_create1(0);
    if (pattern != REOPEN) open_all();
    mark();
    uint64_t begin = now = clock_us();
    end = begin + (uint64_t)(atof(argv[3]) * SECOND);
    for (Socket *one = all; one < all + (pattern == BROADCAST ? 1 : sockets); one++) {
        if (pattern != REOPEN) { send_messages(one, in_flight); continue; }
        pending++;
        renew(one, 0);
        if (one->state != GONE) watch(one, EPOLL_CTL_ADD);
    }
    while (pending && now < end + DRAIN) {
        int ready = epoll_wait(poller, events, EVENTS, 50);
        now = clock_us();
        for (int i = 0; i < ready; i++) serve(events[i].data.ptr, events[i].events);
    }
    uint64_t took = now - begin;
    unanswered = pending;
    mark();
    for (Socket *one = all; one < all + sockets; one++) {
        if (one->state == OPEN) send_small(one, BYE, sizeof BYE);
    }
    report(took);
    return 0;
}
