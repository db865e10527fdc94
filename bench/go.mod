module github.com/expediter-io/expediter/bench

go 1.26
