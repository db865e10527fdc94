package input

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// readJSONLines hands each line's place to out. Lines that are too long are skipped without being held.
func readJSONLines(src *source, maxRecord int, out *sink) error {
	buffered := bufio.NewReaderSize(src, 64<<10)
	var line []byte
	var offset int64
	for number := 1; ; number++ {
		var consumed int
		var err error
		line, consumed, err = readLine(buffered, line[:0], maxRecord)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", src.name, err)
		}
		offset += int64(consumed)
		if failed := jsonLine(src, line, consumed, number, offset, maxRecord, out); failed != nil {
			return failed
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the file
		}
	}
}

func jsonLine(src *source, line []byte, consumed, number int, offset int64, maxRecord int, out *sink) error {
	if consumed > len(line) {
		return out.reject(&RowError{Position: src.at(number), Fields: []FieldError{{
			Problem: fmt.Sprintf("the line is longer than %d bytes", maxRecord),
		}}})
	}
	trimmed := bytes.TrimSpace(line)
	if len(trimmed) == 0 {
		return nil
	}
	// The buffer is used again for the next line; a place keeps its bytes.
	return out.object(bytes.Clone(trimmed), src.at(number), "", src.base+offset)
}

// readLine appends the next line to line, up to most bytes of it, and returns how many bytes it consumed.
func readLine(r *bufio.Reader, line []byte, most int) ([]byte, int, error) {
	consumed := 0
	for {
		chunk, err := r.ReadSlice('\n')
		consumed += len(chunk)
		line = append(line, chunk[:min(len(chunk), most-min(len(line), most))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, consumed, err //nolint:wrapcheck // wrapped by the caller
		}
	}
}
