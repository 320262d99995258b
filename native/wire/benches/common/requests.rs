//! A request of a browser, for the benchmarks of HTTP/2 and HTTP/3.

pub(crate) const BROWSER: [(&str, &str); 12] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/assets/app.js?v=3f2a"),
    (":authority", "www.example.com"),
    ("sec-ch-ua", "\"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\""),
    ("sec-ch-ua-mobile", "?0"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
    ),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("sec-fetch-site", "same-origin"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9"),
    ("cookie", "session=0123456789abcdef0123456789abcdef"),
];
