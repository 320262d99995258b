/* The floor: one thread, epoll, a fixed 200 for each complete request head. No parsing, no bodies, no application. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static const char ANSWER[] =
    "HTTP/1.1 200 OK\r\nserver: epoll\r\ncontent-type: text/plain\r\ncontent-length: 13\r\n\r\nHello, World!";
static unsigned char matched[1 << 16]; /* per descriptor: how much of CR LF CR LF the bytes so far end with */
static char in[65536], out[65536 * 32];

static void serve(int client) {
    ssize_t got = read(client, in, sizeof in);
    if (got <= 0) { if (got == 0 || errno != EAGAIN) close(client); return; }
    size_t length = 0, state = matched[client];
    for (ssize_t i = 0; i < got; i++) {
        state = in[i] == "\r\n\r\n"[state] ? state + 1 : in[i] == '\r';
        if (state == 4) { state = 0; memcpy(out + length, ANSWER, sizeof ANSWER - 1); length += sizeof ANSWER - 1; }
    }
    matched[client] = state;
    for (size_t sent = 0; sent < length;) {
        ssize_t n = write(client, out + sent, length - sent);
        if (n < 0) { if (errno == EAGAIN) continue; close(client); return; }
        sent += n;
    }
}

int main(int argc, char **argv) {
    int yes = 1, server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = server}, events[512];
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    signal(SIGPIPE, SIG_IGN);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 4096)) { perror("epoll"); return 1; }
    epoll_ctl(poll, EPOLL_CTL_ADD, server, &event);
    for (;;) {
        int ready = epoll_wait(poll, events, 512, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd != server) { serve(events[i].data.fd); continue; }
            int client;
            while ((client = accept4(server, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                if (client >= (int)sizeof matched) { close(client); continue; }
                matched[client] = 0;
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                event.data.fd = client;
                epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
            }
        }
    }
}
