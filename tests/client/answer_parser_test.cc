#include "client/answer_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "client/event_lines.h"
#include "client/url.h"

namespace quire {
namespace {

// The body of an answer that comes in pieces of `size` bytes.
std::string body_of(AnswerParser& parser, std::string_view answer, size_t size) {
  std::string body;
  for (size_t at = 0; at < answer.size(); at += size) {
    std::string_view bytes = answer.substr(at, size);
    while (!bytes.empty() && !parser.complete()) {
      const AnswerParser::Piece piece = parser.feed(bytes);
      bytes.remove_prefix(piece.taken);
      body += piece.body;
    }
  }
  return body;
}

TEST(AnswerParser, EveryPieceSizeGivesTheSame) {
  const std::string answers[] = {
      "HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
  };
  for (const std::string& answer : answers) {
    for (size_t size = 1; size <= answer.size(); ++size) {
      AnswerParser parser;
      EXPECT_EQ(body_of(parser, answer, size), "hello");
      EXPECT_TRUE(parser.complete());
      EXPECT_TRUE(parser.keep_alive());
      EXPECT_EQ(parser.status(), 200);
      EXPECT_EQ(parser.reason(), "OK");
    }
  }
}

TEST(AnswerParser, WhatEndsWithTheConnection) {
  AnswerParser parser;
  EXPECT_EQ(body_of(parser, "HTTP/1.1 200 OK\r\n\r\nall of it", 4), "all of it");
  EXPECT_FALSE(parser.complete());
  parser.end();
  EXPECT_TRUE(parser.complete());
  EXPECT_FALSE(parser.keep_alive());
  parser.reset();
  EXPECT_EQ(body_of(parser, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 7),
            "");
  EXPECT_TRUE(parser.complete());
  EXPECT_FALSE(parser.keep_alive());
  EXPECT_EQ(parser.reason(), "Service Unavailable");
}

TEST(AnswerParser, WhatIsNoAnswer) {
  const std::string broken[] = {
      "SSH-2.0-OpenSSH\r\n",
      "HTTP/1.1 OK\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: minus\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
      "HTTP/1.1 200 OK\r\nX: " + std::string(70000, 'x'),
  };
  for (const std::string& answer : broken) {
    AnswerParser parser;
    EXPECT_THROW(body_of(parser, answer, 100), Error) << answer.substr(0, 60);
  }
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 300; ++i) many += "X: y\r\n";
  AnswerParser parser;
  EXPECT_THROW(body_of(parser, many, 100), Error);
  for (const char* cut : {"", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "HTTP/1.1 200 OK\r\n"}) {
    AnswerParser half;
    body_of(half, cut, 100);
    EXPECT_THROW(half.end(), Error) << cut;
  }
}

TEST(EventLines, DataOfEachEvent) {
  const std::string text = ": ping\n\ndata: {\"a\": 1}\r\n\r\nevent: x\ndata:two\n\ndata:  [DONE] \n\ndata: cut";
  for (size_t size = 1; size <= text.size(); ++size) {
    EventLines lines;
    std::string found;
    for (size_t at = 0; at < text.size(); at += size) {
      lines.feed(std::string_view(text).substr(at, size));
      while (const auto data = lines.next()) found += std::string(*data) + "|";
    }
    EXPECT_EQ(found, "{\"a\": 1}|two|[DONE]|");
    lines.finish();
    EXPECT_EQ(lines.next(), "cut");
    EXPECT_FALSE(lines.next().has_value());
  }
  EventLines endless;
  endless.feed(std::string(EventLines::kMaxLine, 'x'));
  EXPECT_FALSE(endless.next().has_value());
  endless.feed("x");
  EXPECT_THROW(endless.next(), Error);
}

TEST(HttpUrl, Parts) {
  const HttpUrl url = parse_http_url("https://[::1]:8443/v1/", "url");
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, "8443");
  EXPECT_EQ(url.path, "/v1");
  EXPECT_EQ(url.text(), "https://[::1]:8443/v1");
  EXPECT_EQ(parse_http_url("http://host", "url").text(), "http://host:80");
  EXPECT_EQ(parse_http_url("https://host/a/b", "url").text(), "https://host:443/a/b");
  for (const char* bad : {"", "ftp://x", "http://", "http://:80", "http://h:port", "http://h:123456", "http://h o",
                          "http://[::1", "http://h\n"})
    EXPECT_THROW(parse_http_url(bad, "url"), Error) << bad;
}

}  // namespace
}  // namespace quire
