// A client of HTTP/3 by quic-go. See clients.py for its arguments and its output.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
)

type response struct {
	Status int    `json:"status"`
	Length int    `json:"length"`
	Digest string `json:"digest"`
}

type result struct {
	Responses []response `json:"responses"`
	Error     string     `json:"error,omitempty"`
	Seconds   float64    `json:"seconds,omitempty"`
	Count     int        `json:"count,omitempty"`
	Failures  []string   `json:"failures,omitempty"`
}

const unsupported = 3

var (
	base      = os.Args[2]
	arguments = os.Args[3:]
	config    = &quic.Config{Tracer: qlog.DefaultConnectionTracer, MaxIdleTimeout: 30 * time.Second}
	sessions  = &tls.Config{
		InsecureSkipVerify: true,
		ServerName:         "localhost",
		NextProtos:         []string{"h3"},
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
)

func check(err error) {
	if err != nil {
		end(result{Error: err.Error()}, 1)
	}
}

func end(found result, status int) {
	json.NewEncoder(os.Stdout).Encode(found)
	os.Exit(status)
}

func transport() *quic.Transport {
	conn, err := net.ListenUDP("udp", nil)
	check(err)
	return &quic.Transport{Conn: conn}
}

func dial(early bool) (*quic.Conn, *http3.ClientConn) {
	request, err := http.NewRequest("GET", base, nil)
	check(err)
	address, err := net.ResolveUDPAddr("udp", request.URL.Host)
	check(err)
	var conn *quic.Conn
	if early {
		conn, err = transport().DialEarly(context.Background(), address, sessions, config)
	} else {
		conn, err = transport().Dial(context.Background(), address, sessions, config)
	}
	check(err)
	return conn, (&http3.Transport{}).NewClientConn(conn)
}

func ask(client *http3.ClientConn, method, path string, body []byte) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return response{}, err
	}
	answer, err := client.RoundTrip(request)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	digest := sha256.Sum256(content)
	return response{answer.StatusCode, len(content), hex.EncodeToString(digest[:])}, err
}

func one(client *http3.ClientConn, method, path string, body []byte) result {
	found, err := ask(client, method, path, body)
	check(err)
	return result{Responses: []response{found}}
}

func main() {
	switch os.Args[1] {
	case "get":
		count, err := strconv.Atoi(arguments[0])
		check(err)
		_, client := dial(false)
		found := result{Responses: make([]response, count)}
		var all sync.WaitGroup
		for i := range count {
			all.Go(func() {
				answer, err := ask(client, "GET", arguments[1], nil)
				check(err)
				found.Responses[i] = answer
			})
		}
		all.Wait()
		end(found, 0)
	case "post":
		size, err := strconv.Atoi(arguments[0])
		check(err)
		_, client := dial(false)
		end(one(client, "POST", arguments[1], make([]byte, size)), 0)
	case "resume", "early":
		conn, client := dial(false)
		one(client, "GET", arguments[0], nil)
		time.Sleep(100 * time.Millisecond)
		conn.CloseWithError(0x100, "")
		method := "GET"
		if os.Args[1] == "early" {
			method = http3.MethodGet0RTT
		}
		_, client = dial(os.Args[1] == "early")
		end(one(client, method, arguments[0], nil), 0)
	case "version":
		config.Versions = []quic.Version{quic.Version2, quic.Version1}
		_, client := dial(false)
		end(one(client, "GET", arguments[0], nil), 0)
	case "migrate":
		conn, client := dial(false)
		one(client, "GET", arguments[0], nil)
		path, err := conn.AddPath(transport())
		check(err)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		check(path.Probe(ctx))
		check(path.Switch())
		end(one(client, "GET", arguments[0], nil), 0)
	case "again", "wait":
		conn, client := dial(false)
		one(client, "GET", arguments[0], nil)
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
		begin := time.Now()
		var err error
		if os.Args[1] == "again" {
			var found response
			found, err = ask(client, "GET", arguments[0], nil)
			if err == nil {
				end(result{Responses: []response{found}}, 0)
			}
		} else {
			<-conn.Context().Done()
			err = context.Cause(conn.Context())
		}
		end(result{Error: err.Error(), Seconds: time.Since(begin).Seconds()}, 0)
	case "load":
		seconds, err := strconv.ParseFloat(arguments[0], 64)
		check(err)
		client := &http.Client{Transport: &http3.Transport{TLSClientConfig: sessions, QUICConfig: config}}
		found := result{Failures: []string{}}
		for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
			answer, err := client.Get(base + arguments[1])
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			if err == nil {
				found.Count++
			} else {
				found.Failures = append(found.Failures, err.Error())
			}
		}
		end(found, 0)
	default:
		os.Exit(unsupported)
	}
}
