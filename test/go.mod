module github.com/expediter-io/expediter/test

go 1.26
