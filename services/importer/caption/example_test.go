package caption_test

import (
	"fmt"
	"os"

	"github.com/expediter-io/expediter/services/importer/caption"
)

const rolling = `WEBVTT
Kind: captions
Language: en

00:00:00.000 --> 00:00:02.990 align:start position:0%
 
crack<00:00:00.500><c> two</c><00:00:01.000><c> eggs</c>

00:00:02.990 --> 00:00:03.000 align:start position:0%
crack two eggs
 

00:00:03.000 --> 00:00:05.000 align:start position:0%
crack two eggs
add<00:00:03.500><c> salt</c><00:00:04.000><c> &amp;</c><00:00:04.500><c> pepper</c>
`

func Example() {
	track, err := caption.Parse([]byte(rolling), caption.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(track.Format, track.Language, len(track.Cues), track.Truncated)
	if err := track.Transcript().WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// webvtt en 3 false
	// [0.00s] crack two eggs
	// [3.00s] add salt & pepper
}

func ExampleFormatError() {
	_, err := caption.Parse([]byte("<!doctype html><title>Sign in</title>"), caption.Options{})
	fmt.Println(err)
	// Output:
	// not captions: found an HTML page; give the caption file itself, as WebVTT or SRT in UTF-8
}
