// Command empty does nothing: what any Go program costs to execute.
package main

func main() {}
