# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../support/listening"

# Each new customer costs half a megabyte. The heap dump has a Net::HTTP of a few hundred bytes for each.
RSpec.describe "the story of certificates that each client loads", :listening do
  let(:story) { File.join(Subprocess::ROOT, "spec/fixtures/stories/cert_store_pool.rb") }
  let(:add_file) { "#{story}:#{File.readlines(story).index { |line| line.include?('store.add_file') } + 1}" }

  # The program, and the end by which customers come.
  def pool(requires, first, name)
    start_worker("#{first}load #{story.dump}", File.join(socket_folder, name), requires: requires)
  end

  it "says which library, which line, which objects, and by the next command who holds them" do
    program, input = pool(["memintro"], "Memintro.listen; ", "a.pem")
    plain, plain_input = pool([], "", "b.pem")
    expect([program.line, plain.line]).to all(eq("at first: no customers"))
    serve(program, input)
    serve(plain, plain_input)
    idle = memintro("leaks", program.pid, "--track", "0.1").must_succeed.stdout.lines.first
    expect(idle).to match(/\A[4-8]\.\d MiB are owned by \d+ objects of class OpenSSL::X509::Store/)
    memintro("start", program.pid).must_succeed
    expect(Array.new(2) { serve(program, input) }).to eq(Array.new(2) { serve(plain, plain_input) })

    text = memintro("leaks", program.pid, "--track", "0.1").must_succeed.stdout
    expect(text.lines.first).to match(/\A1\d\.\d MiB that libcrypto asked for at #{Regexp.escape(add_file)} came /)
      .and end_with("while it tracked, and are still there: 20 objects of class OpenSSL::X509::Store own them, and " \
                    "their extension does not tell Ruby their size.\n")
    command = "memintro holders #{program.pid} --class OpenSSL::X509::Store"
    expect(text.lines[1]).to eq("Who holds these objects: #{command}.\n")
    expect(text.lines[2]).to match(/\ALittle is leaked: |\ANo block that nothing points to/)
    expect(text.lines.first(5).join).not_to include("--track")
    expect(memintro(*command.split.drop(1)).must_succeed.stdout.lines.first)
      .to match(/\A(?:29|30) of 3\d OpenSSL::X509::Store \(.*?\): Net::HTTP\#@cert_store ← Endpoint\#@http ← Endpoint/)
      .and include("EndpointPool\#@endpoints (Hash) ← POOL")
    expect(serve(program, input)).to eq(serve(plain, plain_input))
  ensure
    [input, plain_input].compact.each(&:close)
  end
end
